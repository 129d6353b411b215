// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"encoding/json"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/docs/examples/cells/zones"
	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

const vendorDir = "examples/vendor"

// TestVendorIsShort counts the lines with code of the operator that embedding.md
// shows.
func TestVendorIsShort(t *testing.T) {
	const most = 50
	if n := linesOfCode(t, filepath.Join(vendorDir, "main.go")); n > most {
		t.Errorf("the example has %d lines of code, more than %d", n, most)
	}
}

// linesOfCode are the lines on which something stands that is no comment.
func linesOfCode(t *testing.T, path string) int {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(src)), src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, _ := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		lines[files.Position(pos).Line] = true
	}
}

// vendor is the example, built once as its own module would be built.
func vendor(t *testing.T) string {
	t.Helper()
	program, err := buildVendor()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var buildVendor = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programs, "acme-operator")
	if out, err := exec.Command("go", "build", "-C", vendorDir, "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", vendorDir, err, out)
	}
	return program, nil
})

// vendorCells is what the example lists of Acme.
func vendorCells(t *testing.T) string {
	t.Helper()
	line := "acme-operator cells | grep -e TITLE -e acme"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(vendor(t))+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return "$ " + line + "\n" + tidy(string(out))
}

// TestVendorTakesOptionsAsTheOriginalDoes checks that variables of the environment count with the prefix only: PLAN
// in the environment of a pod must not make a dry run of an operator.
func TestVendorTakesOptionsAsTheOriginalDoes(t *testing.T) {
	program := vendor(t)
	out := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "CLUSTER_NAME=leak", "PLAN=true", "DEBUG=1", "CONFIG=foo", "CILIUM_CLUSTER_NAME=prod")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return string(text)
	}
	want := "OPTION        VALUE  SOURCE                           CELL\ncluster-name  prod   environment CILIUM_CLUSTER_NAME  cluster\n"
	if got := out("config", "--diff"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := out("--version"); got != "Cilium-Operator devel\n" {
		t.Errorf("%q", got)
	}
	if got := out("metrics", "describe", "-p", "job_runs"); !strings.Contains(got, "cilium_operator_job_runs_total") {
		t.Error(got)
	}
}

// TestVendorRuns runs the example on a real API server: one cell of ours is
// removed, one replaced, one added that keeps fields of its own.
func TestVendorRuns(t *testing.T) {
	s := newSite(t)
	program := vendor(t)
	s.define()
	s.addNode("ours", nil, map[string]any{"instance-id": "i-1"})
	s.addNode("foreign", nil, map[string]any{})
	namespace, socket, proxy := s.namespace(), socketPath(t), s.NewProxy(t)
	registry := newRegistry(t)
	run(t, program, "--acme-registry="+registry.URL,
		"--k8s-kubeconfig-path="+proxy.Kubeconfig(), "--k8s-namespace="+namespace, "--operator-sock-path="+socket,
		"--operator-api-serve-addr=127.0.0.1:0", "--enable-gops=false", "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.1.0.0/16",
		"--leader-election-lease-duration=15s") // of the cell that is replaced
	until(t, "both nodes have pod CIDRs", func() bool {
		return s.field("ours", "spec", "ipam", "podCIDRs") != "" && s.field("foreign", "spec", "ipam", "podCIDRs") != ""
	})
	until(t, "the node that is no machine of Acme is told, and no more", func() bool {
		told := slices.DeleteFunc(degradedOf(t, program, socket), func(id string) bool { return !strings.HasPrefix(id, "acme.") })
		return slices.Equal(told, []string{"acme.inventory.foreign"})
	})
	until(t, "both nodes are registered", func() bool { return registry.has("ours", "i-1") && registry.has("foreign", "") })
	until(t, "the write is explained", func() bool {
		out, err := exec.CommandContext(t.Context(), program, "writes", "--operator-sock-path="+socket).Output()
		return err == nil && strings.Contains(string(out), "put registry/machines ours: ok; acme.registry register, set off by CiliumNode ours")
	})
	if n := writers(t, proxy, "leases"); len(n) > 0 {
		t.Errorf("it writes leases although its election is replaced: %v", n)
	}
	if n := writers(t, proxy, "customresourcedefinitions"); len(n) > 0 {
		t.Errorf("it writes definitions although the cell that does is removed: %v", n)
	}
}

// registry is Acme's registry of machines.
type registry struct {
	*httptest.Server
	mu       sync.Mutex
	machines map[string]string // by node, as JSON
}

func newRegistry(t *testing.T) *registry {
	r := &registry{machines: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	node := path.Base(req.URL.Path)
	if req.Method == http.MethodPut {
		body, _ := io.ReadAll(req.Body)
		r.machines[node] = string(body)
	}
	text, known := r.machines[node]
	if !known {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = io.WriteString(w, text)
}

func (r *registry) has(node, machine string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machines[node] == fmt.Sprintf(`{"node":%q,"machine":%q}`, node, machine)
}

// run starts a program that ends with the test, and in order.
func run(t *testing.T, program string, args ...string) *logtest.Buffer {
	t.Helper()
	log := &logtest.Buffer{}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, log)
		}
	})
	return log
}

// degradedOf is what the status command of a program names as degraded.
func degradedOf(t *testing.T, program, socket string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "status", "--json", "--operator-sock-path="+socket).Output()
	if err != nil {
		return nil // not there yet
	}
	var screen struct{ Degraded []struct{ ID string } }
	if err := json.Unmarshal(out, &screen); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var ids []string
	for _, d := range screen.Degraded {
		ids = append(ids, d.ID)
	}
	return ids
}

// define makes the definitions of all kinds, as a chart would.
func (s *site) define() {
	s.t.Helper()
	definitions, err := api.CRDs(api.Edition{})
	if err != nil {
		s.t.Fatal(err)
	}
	resource := s.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	for _, definition := range definitions {
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = resource.Create(s.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
	}
}

const (
	zone           = "topology.kubernetes.io/zone"
	zoneAnnotation = "zones.example.com/zone"
)

// TestTwoOperatorsInOneProcess runs two lists of cells side by side, each with
// its own configuration and its own way to the API server.
func TestTwoOperatorsInOneProcess(t *testing.T) {
	s := newSite(t)
	first, second := s.namespace(), s.namespace()
	firstDoor, secondDoor := s.NewProxy(t), s.NewProxy(t)

	// region two

	giver := start(t, cells.Operator,
		"--k8s-kubeconfig-path="+firstDoor.UserKubeconfig(t, "first", "system:masters"), "--k8s-namespace="+first,
		"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.2.0.0/16")
	teller := start(t, cells.Operator.Without("ipam.clusterpool").WithInTerm("leader", zones.Cell),
		"--k8s-kubeconfig-path="+secondDoor.UserKubeconfig(t, "second", "system:masters"), "--k8s-namespace="+second,
		"--ipam=kubernetes")

	// endregion

	s.addNode("node", map[string]string{zone: "east"}, map[string]any{})
	until(t, "the one gives pod CIDRs", func() bool { return s.field("node", "spec", "ipam", "podCIDRs") != "" })
	until(t, "the other tells zones", func() bool { return s.field("node", "metadata", "annotations", zoneAnnotation) == "east" })

	for door, want := range map[*clustertest.Proxy]string{firstDoor: "ipam.clusterpool", secondDoor: "zones"} {
		got := writers(t, door, "ciliumnodes")
		delete(got, want)
		if len(got) > 0 {
			t.Errorf("through a door that is for %s alone CiliumNodes are written by %v", want, got)
		}
	}
	if a, b := s.holder(first), s.holder(second); a == "" || b == "" || a == b {
		t.Errorf("the leases are held by %q and %q", a, b)
	}
	for _, r := range []struct {
		*running
		has bool
	}{{giver, true}, {teller, false}} {
		if has := hasMetric(t, r.Hive, "cilium_operator_ipam_cluster_pool_nodes"); has != r.has {
			t.Errorf("an operator has the metrics of ipam.clusterpool: %t, want %t", has, r.has)
		}
	}

	giver.stop()
	if holder := s.holder(first); holder != "" {
		t.Errorf("%s has stopped and holds its lease", holder)
	}
	s.relabel("node", "west")
	until(t, "the other goes on", func() bool { return s.field("node", "metadata", "annotations", zoneAnnotation) == "west" })
	teller.stop()
}

func hasMetric(t *testing.T, h *hive.Hive, name string) bool {
	t.Helper()
	list, err := h.DeclaredMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Name == name {
			return true
		}
	}
	return false
}

func (s *site) relabel(node, value string) {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{zone: value}}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.core.CoreV1().Nodes().Patch(s.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// region decorate

var eager = cells.Operator.With(cell.Decorate(func(c k8s.Config) k8s.Config {
	c.QPS = max(c.QPS, 500)
	return c
}))

// endregion

// TestDecorate checks what the example does.
func TestDecorate(t *testing.T) {
	var got k8s.Config
	h := quiet(t, eager.With(cell.Invoke(func(c k8s.Config) { got = c })), "--operator-k8s-client-qps=20", "--ipam=kubernetes", "--k8s-api-server=http://127.0.0.1:1")
	if err := h.Build(); err != nil || got.QPS != 500 {
		t.Errorf("%v, QPS %g", err, got.QPS)
	}
}

// region events

// failures prints every step of the operator that failed.
func failures(w io.Writer) hive.Option {
	return hive.OnEvent(func(e hive.Event) {
		if e.Err != nil {
			fmt.Fprintln(w, e.Kind, e.Term, e.Module, e.Name, e.Err)
		}
	})
}

// endregion

// TestFailures checks what the example does.
func TestFailures(t *testing.T) {
	var text strings.Builder
	h := hive.New("acme", cell.Module("acme", "Fails", cell.Invoke(func() error { return io.ErrUnexpectedEOF })),
		hive.LogTo(io.Discard), failures(&text))
	if err := h.Build(); err == nil || !strings.HasPrefix(text.String(), "constructed  acme ") || !strings.Contains(text.String(), "unexpected EOF") {
		t.Errorf("%v: %s", err, &text)
	}
}

// incomplete lacks what those need who take from the cell that it replaces.
var incomplete = cells.Operator.Replace("reconcile", cell.Module("acme.reconcile", "Has not what others take"))
