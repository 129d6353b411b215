// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cell declares the parts of an operator.
//
// A cell is an immutable value: a module and what stands in it: config
// structs with their flags, constructors, hooks, jobs, the condition that
// enables it. Making and listing cells has no effect and never fails; mistakes
// are reported together when a hive is made of the list.
//
// The life of a cell, in order:
//
//  1. Declared: package variables are initialised. Nothing runs.
//  2. Configured: its flags are collected, its config structs filled.
//  3. Selected: its condition is evaluated. A module that is off provides
//     nothing and costs nothing; its flags stay known.
//  4. Validated: its config structs and rules are checked.
//  5. Built: those of its constructors run that a hook, a job or an invoke
//     needs, once per process, or once per term for cells in a [Term].
//     Constructors do no I/O and start nothing.
//  6. Started: its hooks and jobs, after those of what they depend on.
//  7. Stopped: in reverse, also when starting failed half-way.
//
// Steps 5 to 7 repeat for the cells of a term, and for a module that panicked.
//
// What belongs here is the vocabulary of declarations. What makes them run is
// in package hive.
package cell
