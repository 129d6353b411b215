// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import "github.com/spf13/pflag"

// flag is an option of a duty that is not implemented.
type flag struct {
	duty    string
	name    string
	kind    string // type name in the help
	value   string // default
	removed bool   // from the original as well
}

// flags are the options of the original that no cell has yet, by duty. They move with
// the duty when it is implemented.
var flags = []flag{
	{"metrics", "metrics-sampling-interval", "duration", "5m0s", false},
	{"legacy BGP (removed)", "bgp-announce-lb-ip", "bool", "false", true},
	{"legacy BGP (removed)", "bgp-config-path", "string", "/var/lib/cilium/bgp/config.yaml", true},
	{"shell", "shell-sock-path", "string", "/var/run/cilium/shell.sock", false},
	{"groups of tests", "register-dummy-external-group", "bool", "false", false},
	{"services by slices", serviceModeFlag, "string", "prefer-legacy", false},
	{"AWS", "aws-pagination-enabled", "bool", "true", false},
}

const serviceModeFlag = "clustermesh-service-v2"

// serviceModes are its values.
var serviceModes = []string{"prefer-legacy", "prefer-endpointslice", "only-endpointslice"}

// withoutEffect are the options of what is not to be built, with what serves the purpose.
var withoutEffect = map[string]string{
	"aws-pagination-enabled":        "lists of EC2 always have pages",
	"metrics-sampling-interval":     "Prometheus keeps samples of metrics",
	"register-dummy-external-group": "it is for tests of the original",
	"shell-sock-path":               "the commands beside operator status answer at --operator-sock-path",
}

func declare(fs *pflag.FlagSet) {
	for _, f := range flags {
		usage := "Not built yet: " + f.duty
		if instead := withoutEffect[f.name]; instead != "" {
			usage = "Has no effect: " + instead
		}
		if f.removed {
			usage = "Removed from the original"
		}
		fs.Var(text(f), f.name, usage)
		_ = fs.MarkHidden(f.name)
		if f.kind == "bool" {
			fs.Lookup(f.name).NoOptDefVal = "true"
		}
	}
}

// text is the value of a flag that is not read.
type text flag

func (t text) Set(string) error { return nil }
func (t text) String() string   { return t.value }
func (t text) Type() string     { return t.kind }
