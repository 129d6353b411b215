// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package config finds the values of options and decodes them into the config
// structs of cells.
//
// A value comes from the command line, the environment, a config file or a
// config directory (a file that is read replaces the directory), or the
// default, in this order; docs/wire/configuration.md has the rules. Values
// are kept as text until the struct field they belong to says what they are,
// so that 007 stays 007 in a string and the keys of a map keep their case.
// Viper finds and reads the file; decoding is done here.
//
// All mistakes of one pass end up in one [Report]. What lives here knows no
// cell: it is given structs and flag sets.
package config
