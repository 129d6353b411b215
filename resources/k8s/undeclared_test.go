// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// fjord is the client of a module that has declared little.
func fjord(t *testing.T, server string, log *logtest.Buffer) (client Client, tree *health.Tree) {
	t.Helper()
	h := hive.New("test", cell.Set(Cell,
		cell.Module("fjord", "Asks for more than it has declared",
			RBAC(Allow("list", schema.GroupResource{Resource: "pods"}), AllowNamed("get", schema.GroupResource{Resource: "nodes"}, "a")),
			cell.Invoke(func(c Client, t *health.Tree) { client, tree = c, t })),
		cell.Module("other", "Has declared for it", OptionalRBAC(Allow("watch", schema.GroupResource{Resource: "pods"})))),
		hive.LogTo(log), hive.Environ(func(string) (string, bool) { return "", false }))
	fs := h.FlagSet()
	if err := fs.Parse([]string{"--k8s-api-server=" + server}); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(fs); err != nil {
		t.Fatal(err)
	}
	if err := h.Build(); err != nil {
		t.Fatal(err)
	}
	return client, tree
}

// An object that may be read by its name, and is refused once, is not looked for in a list that no module has declared.
func TestARefusedGetIsNoUndeclaredList(t *testing.T) {
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
	}))
	t.Cleanup(api.Close)
	client, tree := fjord(t, api.URL, &logtest.Buffer{})
	_, err := client.Get(t.Context(), Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Name: "a"})
	if err == nil || slices.Contains(asked, "/api/v1/nodes") || len(tree.Degraded()) != 0 {
		t.Errorf("%v; it asked for %q; degraded: %v", err, asked, tree.Degraded())
	}
}

// A request that no module has declared degrades the module that sends it, once: the role that is made of the
// declarations forbids it.
func TestRequestsThatNoModuleDeclares(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","items":[]}`)
	}))
	t.Cleanup(api.Close)
	log := &logtest.Buffer{}
	client, tree := fjord(t, api.URL, log)
	core, err := kubernetes.NewForConfig(client.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	found := func() string {
		for _, s := range tree.Degraded() {
			if s.ID == "fjord.undeclared" {
				_, list, _ := strings.Cut(s.Message, "lacks them: ")
				return list
			}
		}
		return ""
	}
	_, _ = core.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, _ = core.CoreV1().Nodes().Get(ctx, "b", metav1.GetOptions{})
	if w, err := core.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{}); err == nil {
		w.Stop()
	}
	_, _ = core.Discovery().ServerVersion()
	if got := found(); got != "" {
		t.Errorf("declared, and found all the same: %s", got)
	}
	for range 2 {
		_, _ = core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		_, _ = core.CoreV1().Pods("a").Get(ctx, "b", metav1.GetOptions{})
	}
	if got, want := found(), "list nodes, get pods"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if n := log.Count("request without a declared permission"); n != 2 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

// Rules with verbs or resources that there are not are mistakes of the list.
func TestMistakenRules(t *testing.T) {
	for name, test := range map[string]struct {
		rules cell.Cell
		want  string
	}{
		"verb":        {RBAC(Allow("gets", schema.GroupResource{Resource: "services"})), `"gets" is no verb of the API`},
		"resource":    {RBAC(Allow("get", schema.GroupResource{Resource: "service"})), `"service" is no resource of the API group ""`},
		"optional":    {OptionalRBAC(Allow("patch", schema.GroupResource{Resource: "node/status"})), `"node" is no resource`},
		"subresource": {RBAC(Allow("update", schema.GroupResource{Resource: "services/status"})), ""},
		"custom":      {RBAC(Allow("update", schema.GroupResource{Group: "fjord.example", Resource: "wings"})), ""},
		"path":        {RBAC(AllowPath("get", "/healthz")), ""},
		"events":      {EventRBAC(), ""},
	} {
		err := hive.New("test", cell.Module("fjord", "Has rules", test.rules), hive.LogTo(io.Discard)).Check()
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "undeclared_test.go:")) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A write without a cause is said once, and degrades the module: in production it is sent all the same.
func TestWritesWithoutACauseDegrade(t *testing.T) {
	tree, log := health.NewTree(), &logtest.Buffer{}
	u := &undeclared{tree: tree, log: slog.New(slog.NewTextHandler(log, nil))}
	for range 2 {
		u.withoutCause("fjord", httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/a/services/b", nil))
	}
	if d := tree.Degraded(); len(d) != 1 || d[0].ID != "fjord.uncaused" || log.Count("write without a cause") != 1 {
		t.Errorf("%+v\n%s", d, log)
	}
}

// Tests of cells make such writes fail.
func TestCelltestIsStrict(t *testing.T) {
	var env string
	hook := cell.Invoke(func() { env = os.Getenv(StrictCause) })
	t.Run("check", func(t *testing.T) { celltest.Check(t, cell.Module("k8s", "Sees the environment", hook)) })
	if env == "" {
		t.Error("the environment variable is not set")
	}
}
