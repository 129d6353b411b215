// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/waittest"
)

const (
	repository = "../../../.."
	manifests  = repository + "/testdata/demo"
)

// audience reads a show until it has all been seen, and then ends it as Ctrl-C does.
type audience struct {
	seen  bytes.Buffer
	leave context.CancelFunc
}

func (a *audience) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "It runs until Ctrl-C") {
		defer a.leave()
	}
	return a.seen.Write(p)
}

// watch runs a demo to its end and returns what it showed.
func watch(t *testing.T, d Demo) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &audience{leave: cancel}
	d.Out, d.limit = a, waittest.Limit
	if err := d.Run(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &a.seen)
	}
	t.Log(a.seen.String())
	return a.seen.String()
}

// buildOperator builds the binary that users run.
func buildOperator(t *testing.T) string {
	t.Helper()
	return build(t, "operator")
}

// build builds a program, which may be a module of its own, without what debuggers read, which takes as long as all else.
func build(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	output, err := exec.CommandContext(t.Context(), "go", "build", "-C", repository+"/cmd/"+name, "-tags=grpcnotrace", "-ldflags=-s -w", "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, output)
	}
	return binary
}

// inOrder checks that texts come one after the other.
func inOrder(t *testing.T, shown string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, after, found := strings.Cut(shown, text)
		if !found {
			t.Fatalf("%q is not shown, or too early", text)
		}
		shown = after
	}
}

func TestDemoShowsEveryNodeWithItsCIDRsAndCleansUp(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short does without")
	}
	shown := watch(t, Demo{Operator: buildOperator(t), Manifests: manifests})
	inOrder(t, shown,
		"==> Starting a control plane", "==> The devcluster is ready", "==> Starting the operator", "==> Loading",
		"the kinds of cilium.io are registered", "every node has its pod CIDRs", "nodes with a ready agent are schedulable",
		"every set of labels has an identity", "every pod is in a slice", "every LoadBalancer Service has its addresses", "every Ingress is programmed", "every Gateway is programmed", "every HTTPRoute has its status", "Leader      this replica", "==> It runs until Ctrl-C",
		"==> Stopping the operator", "stopped leading", "==> Stopping the control plane", "==> Stopped")

	for _, row := range []string{
		`worker-1  +node\.cilium\.io/agent-not-ready  +(-|node\.kubernetes\.io/not-ready)  +False \(CiliumIsUp\)`,
		`cp-1  +node-role\.kubernetes\.io/control-plane  +node-role\.kubernetes\.io/control-plane.*  +False \(CiliumIsUp\)`,
		`\d+  +shop  +cart`,
		`ces-\S+  +monitoring  +prometheus-0`,
		`frontend  +shop  +192\.0\.2\.\d+`,
		`storefront  +shop  +192\.0\.2\.\d+, 2001:db8:1:\S*  +shop\.example\.com  +cilium-secrets/shop-shop-tls`,
		`public  +shop  +192\.0\.2\.\d+, 2001:db8:1:\S*  +\*\.example\.com, www\.example\.com`,
		`storefront  +shop  +True  +Accepted HTTPRoute`,
		`elsewhere  +shop  +False  +No matching listener hostname`,
	} {
		if !regexp.MustCompile(`(?m)^  ` + row + `$`).MatchString(shown) {
			t.Errorf("there is no row %s", row)
		}
	}
	given := map[netip.Prefix]string{}
	for _, name := range []string{"cp-1", "worker-1", "worker-2", "worker-3"} {
		row := regexp.MustCompile(`(?m)^  ` + name + ` +(\S+), (\S+)$`).FindStringSubmatch(shown)
		if row == nil {
			t.Errorf("%s has no row with two CIDRs", name)
			continue
		}
		for _, text := range row[1:] {
			prefix := netip.MustParsePrefix(text)
			if other, taken := given[prefix]; taken {
				t.Errorf("%s and %s both have %s", name, other, prefix)
			}
			given[prefix] = name
		}
	}
	kubeconfig := regexp.MustCompile(`export KUBECONFIG=(.*)`).FindStringSubmatch(shown)[1]
	scratch := filepath.Dir(filepath.Dir(kubeconfig))
	if _, err := os.Stat(scratch); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the scratch folder %s is left: %v", scratch, err)
	}
}

func TestDemoOfACloudShowsAddressesOfEveryNode(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short does without")
	}
	simulator := build(t, "cloudsim")
	for cloud, of := range map[string]struct {
		name string
		rows []string
	}{
		"aws":   {"EC2", []string{`worker-1  +i-0  +1  +\d+`, `worker-2  +i-1  +2  +\d+`, `worker-3  +i-2  +3  +\d+`}},
		"azure": {"Azure", []string{`worker-1  +0  +1  +8`, `worker-2  +1  +1  +(1[5-9]|2\d)`, `worker-3  +2  +1  +(2[5-9]|3\d)`}},
	} {
		t.Run(cloud, func(t *testing.T) {
			shown := watch(t, Demo{Operator: build(t, "operator-"+cloud), CloudSim: simulator, Cloud: cloud, Manifests: manifests + "/" + cloud})
			inOrder(t, shown,
				"==> Starting a simulated "+of.name, "==> The devcluster is ready", "==> Starting the operator", "==> Loading",
				"every node has its addresses of "+of.name, "==> It runs until Ctrl-C", "==> Stopping the operator",
				"==> Stopping the simulated "+of.name, "==> Stopped")
			for _, row := range of.rows {
				if !regexp.MustCompile(`(?m)^  ` + row + `$`).MatchString(shown) {
					t.Errorf("there is no row %s", row)
				}
			}
		})
	}
}

func TestDemoRefusesCloudsThatItHasNot(t *testing.T) {
	for text, d := range map[string]Demo{
		"there is no cloud": {Cloud: "mist"}, "KUBECONFIG is set": {Cloud: "aws", Kubeconfig: "x"},
	} {
		d.Out = io.Discard
		if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

func TestDemoOnAGivenClusterSaysSoFirstAndLoadsNothing(t *testing.T) {
	c := clustertest.Shared(t)
	log := c.Audit(t)
	shown := watch(t, Demo{Operator: buildOperator(t), Manifests: manifests, Kubeconfig: c.Kubeconfig()})
	if !strings.HasPrefix(shown, "==> KUBECONFIG is set") {
		t.Error("it does not say first that the cluster is somebody's")
	}
	inOrder(t, shown, c.Info().APIServer, "What it does when it is elected", "  crds ", "Starting the operator", "Leader      this replica", "==> Stopped")

	for event := range log.Events(t) {
		if event.Mutates() && strings.HasPrefix(event.UserAgent, "demo.test/") {
			t.Errorf("the demo itself wrote: %s %s", event.Verb, event.RequestURI)
		}
	}
	client := kubernetes.NewForConfigOrDie(c.AdminConfig(t))
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "cilium-operator-resource-lock", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the operator did not stand for the election of that cluster: %v", err)
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != "" {
		t.Errorf("the lease was not released: %v", lease.Spec)
	}
}

func TestDemoSaysThatTheOperatorEndedByItself(t *testing.T) {
	dir := t.TempDir()
	kubeconfig, operator := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "operator")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(kubeconfig, `{"current-context":"there","contexts":[{"name":"there","context":{"cluster":"there"}}],
		"clusters":[{"name":"there","cluster":{"server":"https://127.0.0.1:1"}}]}`)
	write(operator, "#!/bin/sh\nif [ \"$1\" = cells ]; then echo '[]'; else exit 3; fi\n")
	var shown bytes.Buffer
	err := Demo{Out: &shown, Operator: operator, Kubeconfig: kubeconfig}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the operator ended by itself: exit status 3") {
		t.Errorf("got %v", err)
	}
}
