// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/waittest"
	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, pending.Cell) }

// warnings are the warnings that a start with the given options logs.
func warnings(t *testing.T, cells cell.Cell, args []string, dir map[string]string) []string {
	t.Helper()
	folder := t.TempDir()
	for key, value := range dir {
		if err := os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	h := hive.New("test", cells, hive.LogTo(&log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse(append(args, "--config-dir="+folder, "--log-opt=format=json")); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["level"] == "warning" {
			texts = append(texts, strings.TrimSpace(fields["msg"].(string)+" "+text(fields["duties"])+text(fields["flags"])))
		}
	}
	return texts
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// Duties are named that the options ask for, those of other cells among them, and no others.
func TestDutiesThatAreAskedFor(t *testing.T) {
	const asked = "not built yet, and asked for: "
	for name, test := range map[string]struct {
		args []string
		dir  map[string]string
		want []string
	}{
		"by default":        {nil, nil, nil},
		"options of agents": {nil, map[string]string{"enable-l7-proxy": "true", "enable-policy": "default"}, nil},
		"a setting only":    {[]string{"--metrics-sampling-interval=1m"}, map[string]string{"enforce-ingress-https": "true"}, nil},
		"a bare flag":       {[]string{"--bgp-announce-lb-ip"}, nil, []string{"ignoring removed flags bgp-announce-lb-ip", asked + "bgp.metallb (bgp-announce-lb-ip)"}},
		"a switch":          {nil, map[string]string{"enable-bgp-control-plane": "true", "bgp-announce-lb-ip": "true"}, []string{asked + "bgp.metallb (bgp-announce-lb-ip)"}},
		"number 24 of the contract's service-sync.md: Services are written all the same": {nil, map[string]string{"clustermesh-service-v2": "only-endpointslice"},
			[]string{asked + "servicesync.slices (clustermesh-service-v2)"}},
		"etcd":           {[]string{"--kvstore=etcd", "--identity-allocation-mode=kvstore"}, nil, nil},
		"a removed flag": {[]string{"--bgp-config-path=x"}, nil, []string{"ignoring removed flags bgp-config-path"}},
		"a removed key":  {nil, map[string]string{"bgp-config-path": "x"}, nil},
		"options of policy status, which had a duty up to 1.14": {nil, map[string]string{
			"cnp-node-status-gc-interval": "2m", "cnp-status-cleanup-qps": "10", "cnp-status-cleanup-burst": "20", "skip-cnp-status-startup-clean": "true",
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			others := cell.Module("others", "Has options", cell.Config(options{Services: true, Mode: "kvstore"}))
			got := warnings(t, cell.Set(pending.Cell, others), test.args, test.dir)
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// The status screen has them, too.
func TestDutiesOnTheStatusScreen(t *testing.T) {
	type sections struct {
		cell.In

		All []health.Section `group:"status sections"`
	}
	var rows [][]string
	h := hive.New("test", cell.Set(pending.Cell, cell.Invoke(func(s sections) { rows = s.All[0].Rows() })),
		hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse([]string{"--bgp-announce-lb-ip"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Build(); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || strings.Join(rows[0], "|") != "bgp.metallb|bgp-announce-lb-ip|Announces LoadBalancer addresses by MetalLB's BGP; removed from the original" {
		t.Errorf("%q", rows)
	}
}

// Number B22 of the contract's bgp.md: values that the original rejects are reported, so that going back to it is possible.
func TestTypesOfOptionsThatNoDutyReads(t *testing.T) {
	const back = "; cilium-operator does not start with it, and no duty of this operator reads it yet"
	for text, want := range map[string]string{
		"metrics-sampling-interval=soon": "must be a duration such as 1m30s",
		"metrics-sampling-interval=5":    "",
		"metrics-sampling-interval=1m":   "",

		"clustermesh-service-v2=both":               "must be one of prefer-legacy, prefer-endpointslice, only-endpointslice",
		"clustermesh-service-v2=only-endpointslice": "",
	} {
		option, value, _ := strings.Cut(text, "=")
		var found []string
		for _, w := range warnings(t, pending.Cell, nil, map[string]string{option: value}) {
			if strings.Contains(w, "cilium-operator does not start") {
				found = append(found, w)
			}
		}
		switch {
		case want == "" && len(found) > 0, want != "" && (len(found) != 1 || !strings.Contains(found[0], want+back) || !strings.HasPrefix(found[0], "--"+option+"=")):
			t.Errorf("%s: %q", text, found)
		}
	}
}

type options struct {
	KVStore  string `flag:"kvstore"`
	IPAM     string `flag:"ipam"`
	Services bool   `flag:"synchronize-k8s-services"`
	Mode     string `flag:"identity-allocation-mode"`
	Disabled bool   `flag:"disable-endpoint-crd"`
}

func (o options) Flags(fs *pflag.FlagSet) {
	fs.String("kvstore", o.KVStore, "")
	fs.String("ipam", o.IPAM, "")
	fs.Bool("synchronize-k8s-services", o.Services, "")
	fs.String("identity-allocation-mode", o.Mode, "")
	fs.Bool("disable-endpoint-crd", o.Disabled, "")
}
