// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package hive builds, starts and stops an operator from a list of cells.
//
// A [Hive] goes through phases, each of which can be called by itself and
// keeps its outcome: New declares, Configure reads the values of options, Select
// decides which modules are on and resolves dependencies, Validate runs the
// rules, Build runs constructors, Start and Stop run hooks and jobs.
// Run does all of it. Nothing is global: several hives run side by side.
//
// Terms are entered through handles that process cells take.
//
// A module that panics is stopped and rebuilt, together with those that use its
// values, while the others continue; in a term so is a module that cannot be built
// or started. In the process, where other modules keep values, only the jobs of
// such a module run again, and terms that it had entered are left. Health has the
// state of the rebuild below the module's id, as its part "start".
//
// Each step emits an [Event], to which an embedder subscribes with [OnEvent].
package hive
