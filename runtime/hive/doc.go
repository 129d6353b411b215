// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package hive makes an operator of a list of cells.
//
// A [Hive] goes through phases, each of which can be called by itself and
// remembers its outcome: New declares, Configure finds the values of options,
// Select decides which modules are on and who provides what to whom, Validate
// asks the rules, Build runs constructors, Start and Stop run hooks and jobs.
// Run does all of it. Nothing is global: several hives run side by side.
//
// Terms are entered through handles that process cells ask for.
//
// A module that panics is taken down and rebuilt, together with those that hold
// its values, while the others run on; in a term so is one that cannot be built
// or started. In the process, where values are held for good, only the jobs of
// such a module run again, and terms that it had entered are left. Health shows
// all of it below the module's id, as its part "start".
package hive
