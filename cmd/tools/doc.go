// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package tools is the module that pins what the project is built and checked with, and nothing that it is made of:
// its dependencies never reach a binary that users run.
//
// Tools of others are run by "go tool -modfile=cmd/tools/go.mod <name>"; a tool of our own is a folder here.
package tools
