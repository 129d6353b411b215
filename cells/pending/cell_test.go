// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
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

// Options of other cells may ask for what is not built.
func TestReportOfOptionsOfOthers(t *testing.T) {
	others := cell.Module("others", "Has options", cell.Config(options{Nodes: true, Mode: "kvstore"}))
	const notBuilt = "not built yet: these duties, and so their options do nothing "
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"without a kvstore": {nil, nil},
		"with a kvstore":    {[]string{"--kvstore=etcd"}, []string{notBuilt + "kvstore identities (identity-allocation-mode); kvstore nodes (synchronize-k8s-nodes)"}},
		"switched off":      {[]string{"--kvstore=etcd", "--synchronize-k8s-nodes=false", "--identity-allocation-mode=crd"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := warnings(t, cell.Module("both", "Both", pending.Cell, others), test.args, nil); strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

type options struct {
	KVStore string `flag:"kvstore"`
	Nodes   bool   `flag:"synchronize-k8s-nodes"`
	Mode    string `flag:"identity-allocation-mode"`
}

func (o options) Flags(fs *pflag.FlagSet) {
	fs.String("kvstore", o.KVStore, "")
	fs.Bool("synchronize-k8s-nodes", o.Nodes, "")
	fs.String("identity-allocation-mode", o.Mode, "")
}

func TestReport(t *testing.T) {
	const notBuilt, removed = "not built yet: these duties, and so their options do nothing ", "flags that were removed are ignored "
	for name, test := range map[string]struct {
		args []string
		dir  map[string]string
		want []string
	}{
		"nothing given": {nil, nil, nil},
		"a flag":        {[]string{"--clustermesh-endpoints-per-slice=7"}, nil, []string{notBuilt + "clustermesh (clustermesh-endpoints-per-slice)"}},
		"a key":         {nil, map[string]string{"enable-ingress-controller": "true"}, []string{notBuilt + "ingress (enable-ingress-controller)"}},
		"a flag without a value": {
			[]string{"--enable-ingress-controller"}, nil, []string{notBuilt + "ingress (enable-ingress-controller)"},
		},
		"several of several duties": {
			[]string{"--eni-tags=a=b", "--eni-tags=c=d", "--eni-gc-interval=1m"}, map[string]string{"enable-ingress-controller": "true", "enforce-ingress-https": "true"},
			[]string{notBuilt + "ingress (enable-ingress-controller, enforce-ingress-https); ipam.aws (eni-gc-interval, eni-tags)"},
		},
		"what is switched off":    {[]string{"--enable-node-ipam=false"}, map[string]string{"enable-ingress-controller": "false", "eni-gc-interval": "0s", "azure-resource-group": ""}, nil},
		"a removed flag":          {[]string{"--bgp-announce-lb-ip"}, nil, []string{removed + "bgp-announce-lb-ip"}},
		"a removed key":           {nil, map[string]string{"bgp-announce-lb-ip": "true"}, nil},
		"a value of another type": {[]string{"--clustermesh-endpoints-per-slice=many"}, nil, []string{notBuilt + "clustermesh (clustermesh-endpoints-per-slice)"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := warnings(t, pending.Cell, test.args, test.dir)
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
