// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/runtime/hive"
)

// configurations turn duties on that exclude each other.
var configurations = map[string][]string{
	"objects": {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--enable-ingress-controller", "--enable-gateway-api", "--kube-proxy-replacement=true"},
	"AWS":     {"--ipam=eni"},
	"mesh":    {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--clustermesh-enable-endpoint-sync", "--clustermesh-config=/nowhere"},
	"Azure":   {"--ipam=azure"},
	"Alibaba": {"--ipam=alibabacloud"},
	"SPIRE":   {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--mesh-auth-mutual-enabled", "--enable-ztunnel", "--ztunnel-ca-type=spire"},
	"a plan":  {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--plan"},
	"etcd":    {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--kvstore=etcd", "--kvstore-opt=etcd.address=http://127.0.0.1:1", "--identity-allocation-mode=doublewrite-readcrd"},
}

// refusals yields what each of the configurations says that refuses an option. To try one takes a tenth of a second.
func refusals(t *testing.T, option, value string) iter.Seq[string] {
	t.Helper()
	return func(yield func(string) bool) {
		for _, name := range slices.Sorted(maps.Keys(configurations)) {
			err := configure(append(slices.Clone(configurations[name]), "--"+option+"="+value))
			if err != nil && !strings.Contains(err.Error(), "--"+option+"=") && !strings.Contains(err.Error(), `"--`+option+`"`) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil && !yield(err.Error()) {
				return
			}
		}
	}
}

// configure returns what is wrong with arguments.
func configure(args []string) error {
	h := hive.New("operator", everything, hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := h.Configure(flags); err != nil {
		return err
	}
	return h.Check()
}

// optionsOf are the options of a type that a duty or the process reads.
func optionsOf(kind string) (names []string) {
	waiting := owners(pending.Cell)
	hive.New("operator", everything).FlagSet().VisitAll(func(f *pflag.Flag) {
		if _, unbuilt := waiting[f.Name]; f.Value.Type() == kind && !unbuilt {
			names = append(names, f.Name)
		}
	})
	return names
}

// A number without its unit is one of nanoseconds: no interval or time limit is meant
// to be so short, and most would keep a processor busy.
func TestDurationsThatAreTooShortAreRefused(t *testing.T) {
	options := optionsOf("duration")
	if len(options) < 15 {
		t.Fatalf("only %d options are durations: %v", len(options), options)
	}
	for _, option := range options {
		for _, value := range []string{"1ns", "100us"} {
			next, stop := iter.Pull(refusals(t, option, value))
			text, refused := next() // by the first configuration that has its duty
			stop()
			if !refused {
				t.Errorf("--%s=%s is valid", option, value)
			} else if !strings.Contains(text, "at least") && !strings.Contains(text, "more than") && !strings.Contains(text, "between") {
				t.Errorf("--%s=%s: the text does not say what is allowed: %s", option, value, text)
			}
		}
	}
}

func TestNumbersThatAreNoneAreRefused(t *testing.T) {
	for _, kind := range []string{"float32", "float64"} {
		for _, option := range optionsOf(kind) {
			for _, value := range []string{"NaN", "Inf", "-Inf", "1e400"} {
				if texts := slices.Collect(refusals(t, option, value)); len(texts) != len(configurations) {
					t.Errorf("--%s=%s is valid", option, value)
				}
			}
		}
	}
}
