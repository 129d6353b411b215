// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"testing"
)

// exceptions are places where a rule does not hold, and why.
type exceptions map[string]string

// check reports places that break a rule, but for the exceptions.
func (e exceptions) check(t *testing.T, rule string, broken map[string]string) {
	t.Helper()
	for place, how := range broken {
		if e[place] == "" {
			t.Errorf("%s: %s\n\t%s", place, how, rule)
		}
	}
	for place := range e {
		if broken[place] == "" {
			t.Errorf("%s keeps the rule, and is listed as an exception from it; take it off the list", place)
		}
	}
}

// unsaid are folders that do not say what lives there.
var unsaid = exceptions{}

// unchecked are cells whose conformance no test checks.
var unchecked = exceptions{}

// exportedByCells are names that a cell exports beside Cell and Config.
var exportedByCells = exceptions{}

// long are files that have more lines than others may.
var long = exceptions{}

// exiting are files outside programs that end the process.
var exiting = exceptions{
	"docs/examples/acmecloud/main.go": "it is a program",
	"docs/examples/floating/main.go":  "it is a program",
	"docs/examples/vendor/main.go":    "it is a program",
	"runtime/command/command.go":      "a second signal ends the process at once",
}

// panicking are functions that panic beside those named Must.
var panicking = exceptions{
	"resources/clustermesh/mesh.go Mesh.run":    "hands on the panic of a connection, which another function recovers, so that the module is rebuilt",
	"resources/internal/workers/workers.go Run": "hands on the panic of a worker, so that the module is rebuilt",
	"resources/kvstore/remote.go Remote.Run":    "hands on the panic of a job of its own, so that the module of the caller is rebuilt",
	"resources/panics/rule.go Rule.handOn":      "hands on a panic that was recovered to name the object, so that the module is rebuilt",
	"resources/panics/rule.go Rebuild":          "hands on a panic that was recovered to name the object, so that the module is rebuilt",
	"runtime/cell/config.go FromEnv":            "flags are declared in a function whose panic is told along with other mistakes of the list",
}

// compiling are functions that compile regular expressions that do not stand in the code, and a file that parses them.
var compiling = exceptions{
	"cells/health/internal/api/command.go MetricsCommand": "an argument of the command line, in its own process",
	"resources/domain/expression/alternatives.go import":  "it is the package that judges what others write",
	"resources/domain/expression/beginning.go import":     "it is the package that judges what others write",
	"resources/domain/expression/cheap.go import":         "it is the package that judges what others write",
	"resources/domain/expression/expression.go import":    "it is the package that judges what others write",
	"resources/domain/expression/program.go import":       "it is the package that judges what others write",
	"resources/domain/expression/size.go import":          "it is the package that judges what others write",
	"resources/domain/labels/filter.go ParseEntry":        "an option that the administrator sets",
	"runtime/command/metrics.go metricsCommand":           "an argument of the command line, in its own process",
}

// reading are functions that read all of what is sent to them, and what bounds it.
var reading = exceptions{
	"cells/health/internal/api/command.go getJSON":    "a command, which asks the operator of its own machine",
	"cells/ipam/alibabacloud/session.go network.Call": "outside.Exchange has bounded the answer",
	"cells/ipam/aws/session.go ownBodies.RoundTrip":   "a request of its own",
	"resources/dryrun/fetch.go origin.ask":            "a command, in its own process",
	"resources/dryrun/transport.go Objects.Write":     "a command, in its own process",
	"resources/dryrun/transport.go Objects.get":       "a command, in its own process",
	"resources/dryrun/transport.go Objects.list":      "a command, in its own process",
	"resources/k8s/object_name.go nameIn":             "a request of its own",
	"resources/k8s/served.go setBodyVersion":          "a request of its own",
	"resources/outside/transport.go Exchange":         "the body was bounded before",
	"resources/outside/transport.go buffered":         "a request of its own",
	"runtime/command/socket.go GetJSON":               "a command, which asks the operator of its own machine",
}

// credulousFiles are files that judge errors without the object that they are about.
var credulousFiles = exceptions{}

// unexplained are exported names without a comment.
var unexplained = exceptions{}

// wordsOfPackages are private words in identifiers or file names of a package, by package.
var wordsOfPackages = exceptions{
	"resources/outside door": "it is a word of the glossary",
}

// wordsOfMessages are private words in messages of a package.
var wordsOfMessages = exceptions{}

// pronouns are packages in whose comments a pronoun stands for a noun.
var pronouns = exceptions{
	"resources/api/v2": "its comments are the descriptions in the CRDs",
}

// logTexts are messages and keys of the log that break the rule, after their package.
var logTexts = exceptions{
	"cells/crds Skipping creation of CRDs": "it is the text of the original",
}
