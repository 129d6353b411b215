// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cells names the sets of cells that operators are made of.
//
// Each folder below is one duty: cell.go declares it, a file of pure planning is
// named for what it decides, controller.go watches and writes. A cell never imports
// another; what two need is an interface in resources. Vendors start from a set
// of this package and change it with With, Without and Replace.
package cells
