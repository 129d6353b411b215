// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package house holds the whole tree to the rules of the house: what holds everywhere, and
// is easily broken somewhere. A rule with exceptions lists them with the reason; an
// exception that is none any more fails, too. It reads files and runs no operator, for its
// tests run again with every change of a file. There is nothing in it to import.
package house
