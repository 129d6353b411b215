// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

// unsaid are folders that do not say what lives there.
var unsaid = exceptions{}

// unchecked are cells whose conformance no test checks.
var unchecked = exceptions{}

// exportedByCells are names that a cell exports beside Cell and Config.
var exportedByCells = exceptions{}

// long are files that have more lines than others may.
var long = exceptions{
	"resources/stream/streamtest/properties.go": "one list of named properties",
}

// exiting are files outside programs that end the process.
var exiting = exceptions{
	"docs/examples/vendor/main.go": "it is a program",
	"runtime/command/command.go":   "a second signal ends the process at once",
}

// panicking are functions that panic beside those named Must.
var panicking = exceptions{
	"runtime/cell/config.go FromEnv": "flags are declared in a function whose panic is told along with other mistakes of the list",
}

// unexplained are exported names without a comment.
var unexplained = exceptions{}
