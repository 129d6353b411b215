// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// A configuration that the original runs with does not block an upgrade: it is warned of, degrades, and runs. Only
// --strict-config refuses it.
func TestConfigurationsThatTheOriginalRunsWith(t *testing.T) {
	defer waittest.NoLeaks(t, goleak.IgnoreCurrent())
	prefixes := filepath.Join(t.TempDir(), "prefixes.json")
	if err := os.WriteFile(prefixes, []byte(`{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"app"}]}`+"\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const off = "--ipam=kubernetes"
	for name, test := range map[string]struct {
		args   []string
		module string
		want   string // in the warning
	}{
		"a cluster's name in capitals":  {[]string{off, "--cluster-name=Prod"}, "cluster", `--cluster-name="Prod" (flag): should be at most 32 lower-case letters, digits and dashes`},
		"an underscore in it":           {[]string{off, "--cluster-name=prod_1"}, "cluster", "--cluster-name="},
		"a long one":                    {[]string{off, "--cluster-name=" + strings.Repeat("a", 33)}, "cluster", "--cluster-name="},
		"a mask that one CIDR is below": {[]string{"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/16,10.1.0.0/25"}, "ipam.clusterpool", `should be at least 25: no node's CIDR is cut from 10.1.0.0/25, which is not used`},
		"data behind the prefixes":      {[]string{off, "--identity-management-mode=operator", "--label-prefix-file=" + prefixes}, "identity", "data behind the JSON value is not read"},
		"a negative number of nodes": {[]string{off, "--enable-cilium-endpoint-slice", `--ces-rate-limits=[{"nodes":-1,"limit":10,"burst":20}]`}, "endpointslice.endpoints",
			"step 1: nodes is negative, which counts as 0"},
		"no garbage collection": {[]string{off, "--cilium-endpoint-gc-interval=0", "--identity-gc-interval=0", "--nodes-gc-interval=0"}, "endpointgc",
			"no CiliumEndpoint is deleted"},
		"an allocator of another binary": {[]string{configDir(t, map[string]string{"ipam": "eni"})}, "cluster", "eni allocator is not supported by this version of cilium-operator-generic"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(test.args, away...)
			var tree *health.Tree
			log := &logtest.Buffer{}
			h := configured(t, log, cells.Operator.With(cell.Invoke(func(t *health.Tree) { tree = t })), args...)
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, s := range tree.Degraded() {
				if s.ID == test.module+".options" {
					found = s.Message
				}
			}
			if err := h.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(found, test.want) || !strings.Contains(strings.Join(h.Warnings(), "\n"), test.want) {
				t.Errorf("%s.options is degraded by %q, and the warnings are %q; want %q", test.module, found, h.Warnings(), test.want)
			}
			if n := log.Count("level=warning", "subsys="+test.module+"\n"); n != 1 {
				t.Errorf("%d warnings of it are logged:\n%s", n, log)
			}
			err := configured(t, &logtest.Buffer{}, cells.Operator, append(args, "--strict-config")...).Check()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("--strict-config: %v", err)
			}
		})
	}
}

// What cannot be used at all is refused as before.
func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	for name, args := range map[string][]string{
		"no name":                                   {"--ipam=kubernetes", "--cluster-name="},
		"a name with a slash":                       {"--ipam=kubernetes", "--cluster-name=a/b"},
		"a mask that all are below":                 {"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/25,10.1.0.0/25"},
		"endpoints are not deleted, identities are": {"--ipam=kubernetes", "--cilium-endpoint-gc-interval=0"},
		"the same with double writes":               {"--ipam=kubernetes", "--cilium-endpoint-gc-interval=0", "--kvstore=etcd", "--kvstore-opt=etcd.address=http://127.0.0.1:1", "--identity-allocation-mode=doublewrite-readcrd"},
	} {
		if err := configured(t, &logtest.Buffer{}, cells.Operator, append(args, away...)...).Check(); err == nil {
			t.Errorf("%s: it is not refused", name)
		}
	}
}

func configured(t *testing.T, log *logtest.Buffer, set cell.Cell, args ...string) *hive.Hive {
	t.Helper()
	h := hive.New("cilium-operator-generic", set, hive.LogTo(log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	_ = h.Configure(flags) // the outcome is remembered
	return h
}
