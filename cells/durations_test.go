// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
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
	"SPIRE":   {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--mesh-auth-mutual-enabled", "--enable-ztunnel", "--ztunnel-ca-type=spire"},
	"a plan":  {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--plan"},
	"etcd":    {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--kvstore=etcd", "--kvstore-opt=etcd.address=http://127.0.0.1:1", "--identity-allocation-mode=doublewrite-readcrd"},
}

// refusals are the configurations that refuse an option, with what they say.
func refusals(t *testing.T, option, value string) (texts []string) {
	t.Helper()
	for name, args := range configurations {
		h := hive.New("operator", everything, hive.Environ(func(string) (string, bool) { return "", false }))
		flags := h.FlagSet()
		if err := flags.Parse(slices.Concat(args, []string{"--" + option + "=" + value})); err != nil {
			texts = append(texts, err.Error())
			continue
		}
		err := h.Configure(flags)
		if err == nil {
			err = h.Check()
		}
		if err != nil {
			if !strings.Contains(err.Error(), "--"+option+"=") {
				t.Errorf("%s: %v", name, err)
			}
			texts = append(texts, err.Error())
		}
	}
	return texts
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
			if texts := refusals(t, option, value); len(texts) == 0 {
				t.Errorf("--%s=%s is valid", option, value)
			} else if !strings.Contains(texts[0], "at least") && !strings.Contains(texts[0], "more than") && !strings.Contains(texts[0], "between") {
				t.Errorf("--%s=%s: the text does not say what is allowed: %s", option, value, texts[0])
			}
		}
	}
}

func TestNumbersThatAreNoneAreRefused(t *testing.T) {
	for _, kind := range []string{"float32", "float64"} {
		for _, option := range optionsOf(kind) {
			for _, value := range []string{"NaN", "Inf", "-Inf", "1e400"} {
				if texts := refusals(t, option, value); len(texts) != len(configurations) {
					t.Errorf("--%s=%s is valid", option, value)
				}
			}
		}
	}
}
