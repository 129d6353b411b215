// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/cells/crds"
	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(clustertest.Wrap(m)) }

// patience is how long a state may take to come; no test waits for a time.
const patience = time.Minute

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// world is an empty cluster and a door of its own.
type world struct {
	t     *testing.T
	proxy *clustertest.Proxy
	admin apiextensionsclient.CustomResourceDefinitionInterface
}

func newWorld(t *testing.T, link ...clustertest.Link) *world {
	t.Helper()
	c := clustertest.Shared(t)
	t.Setenv(k8s.StrictCause, "1")
	config := c.AdminConfig(t)
	admin, err := apiextensionsclient.NewForConfigAndClient(config, httpClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, c.NewProxy(t, link...), admin.CustomResourceDefinitions()}
	w.clear()
	return w
}

// httpClient has connections of its own, which end with the test.
func httpClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	config.Proxy = http.ProxyFromEnvironment // keeps the transport out of client-go's cache
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return client
}

// clear deletes all definitions.
func (w *world) clear() {
	w.t.Helper()
	if err := w.admin.DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "all definitions are gone", func() bool { return len(w.list()) == 0 })
}

func (w *world) list() []apiextensionsv1.CustomResourceDefinition {
	w.t.Helper()
	list, err := w.admin.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) get(name string) *apiextensionsv1.CustomResourceDefinition {
	w.t.Helper()
	crd, err := w.admin.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return crd
}

// create makes a definition in somebody else's name and waits until the server
// has looked at it.
func (w *world) create(crd *apiextensionsv1.CustomResourceDefinition) {
	w.t.Helper()
	if _, err := w.admin.Create(w.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, crd.Name+" has conditions", func() bool { return len(w.get(crd.Name).Status.Conditions) > 1 })
}

func (w *world) update(name string, edit func(*apiextensionsv1.CustomResourceDefinition)) {
	w.t.Helper()
	eventually(w.t, name+" is updated", func() bool {
		crd := w.get(name)
		edit(crd)
		_, err := w.admin.Update(w.t.Context(), crd, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
		return err == nil
	})
}

// ours is our definition of a kind.
func ours(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	k, known := api.KindNamed(kind)
	if !known {
		t.Fatalf("there is no kind %s", kind)
	}
	crd, err := k.CRD()
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

func label(version string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		if crd.Labels == nil {
			crd.Labels = map[string]string{}
		}
		crd.Labels[api.SchemaVersionLabel] = version
	}
}

// operator is the cell in a term that is entered.
type operator struct {
	t       *testing.T
	hive    *hive.Hive
	log     *buffer
	health  *health.Tree
	metrics *metrics.Registry
	onDuty  func() // when another duty of the term starts
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// leading enters the term when the process starts, with a fence that stays open.
var leading = cell.Module("test.leading", "Enters the term under test", cell.Hook("lead", newLeading))

type leadingParams struct {
	cell.In

	Leading k8s.Leading
	Term    lifecycle.Term `name:"leader"`
}

func newLeading(p leadingParams) lifecycle.Hook {
	fence := k8s.NewFence(k8s.SystemClock, k8s.SystemClock.Now(), time.Hour)
	return lifecycle.Funcs{
		OnStart: func(ctx context.Context) error {
			if err := p.Leading.Open(fence, nil); err != nil {
				return err
			}
			return p.Term.Enter(ctx)
		},
		OnStop: func(ctx context.Context) error {
			defer fence.Close()
			return p.Term.Leave(ctx)
		},
	}
}

// start enters a term; it returns when other cells of the term would start.
func start(t *testing.T, kubeconfig string, args ...string) *operator {
	t.Helper()
	o := build(t, kubeconfig, args...)
	o.start()
	return o
}

func build(t *testing.T, kubeconfig string, args ...string) *operator {
	t.Helper()
	o := &operator{t: t, log: &buffer{}, onDuty: func() {}}
	probe := cell.Invoke(func(tree *health.Tree, registry *metrics.Registry) { o.health, o.metrics = tree, registry })
	duty := cell.Module("test.duty", "Is a duty of the term", cell.Hook("work", func() lifecycle.Hook {
		return lifecycle.Funcs{OnStart: func(context.Context) error { o.onDuty(); return nil }}
	}))
	o.hive = hive.New("operator", cell.Set(cluster.Cell(cluster.DefaultConfig), k8s.Cell, reconcile.Cell, leading, probe, cell.Term("leader", duty, crds.Cell)),
		hive.LogTo(o.log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := o.hive.FlagSet()
	if err := flags.Parse(append(args, "--k8s-kubeconfig-path="+kubeconfig, "--log-opt=format=json")); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Build(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stop)
	return o
}

func (o *operator) start() {
	if err := o.hive.Start(o.t.Context()); err != nil {
		o.t.Error(err)
	}
}

func (o *operator) stop() {
	if err := o.hive.Stop(context.Background()); err != nil {
		o.t.Error(err)
	}
}

// logged are the messages of the cell, each with its attributes.
func (o *operator) logged() []string {
	o.t.Helper()
	var lines []string
	for line := range strings.Lines(o.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			o.t.Fatalf("%s: %v", line, err)
		}
		if subsys, _ := fields["subsys"].(string); !strings.HasPrefix(subsys, "crds") {
			continue
		}
		text := fmt.Sprint(fields["level"], ": ", fields["msg"])
		for _, key := range []string{"name", "key", "installed", "missing", "error"} {
			if v, ok := fields[key]; ok {
				text += fmt.Sprintf(" %s=%v", key, v)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// count is how many lines of the log have a text.
func (o *operator) count(text string) int {
	n := 0
	for _, line := range o.logged() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// degraded is what is degraded in the cell, and why.
func (o *operator) degraded() string {
	var b strings.Builder
	for _, s := range o.health.Degraded() {
		if strings.HasPrefix(s.ID, "crds") {
			fmt.Fprintf(&b, "%s: %s: %s\n", s.ID, s.Message, s.Error)
		}
	}
	return b.String()
}

// results are what the metric tells, by definition: installed version and result.
func (o *operator) results() map[string]string {
	o.t.Helper()
	families, err := o.metrics.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	results := map[string]string{}
	for _, f := range families {
		if f.GetName() != "cilium_operator_crd_schema_info" {
			continue
		}
		for _, m := range f.GetMetric() {
			value := func(name string) string {
				i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name })
				return m.GetLabel()[i].GetValue()
			}
			results[value("crd")] = value("installed") + " " + value("result")
		}
	}
	return results
}

// registered waits until something became of so many definitions, and of each
// of them something good. On a slow machine the term is entered before that.
func (o *operator) registered(n int) *operator {
	o.t.Helper()
	eventually(o.t, "all is registered", func() bool {
		results := o.results()
		for _, r := range results {
			if strings.HasSuffix(r, " failed") {
				return false
			}
		}
		return len(results) == n && o.degraded() == ""
	})
	return o
}

// requests are those of the cell for definitions, oldest first.
func (w *world) requests() []clustertest.Request {
	w.t.Helper()
	return slices.DeleteFunc(w.proxy.Requests(w.t, 0), func(r clustertest.Request) bool {
		return !strings.HasSuffix(r.UserAgent, "(crds.registration)")
	})
}

// sent counts requests of the cell by verb and name, as "update ciliumnodes.cilium.io".
func (w *world) sent() map[string]int {
	w.t.Helper()
	sent := map[string]int{}
	for _, r := range w.requests() {
		sent[r.Verb+" "+r.Name]++
	}
	return sent
}

// writes are the changes that the cell asked for.
func (w *world) writes() []string {
	w.t.Helper()
	var writes []string
	for _, r := range w.requests() {
		if r.Mutates() {
			writes = append(writes, fmt.Sprintf("%s %s: %d", r.Verb, r.Name, r.Status))
		}
	}
	return writes
}

// names of definitions, sorted.
func names(crds []apiextensionsv1.CustomResourceDefinition) []string {
	var list []string
	for _, crd := range crds {
		list = append(list, crd.Name)
	}
	slices.Sort(list)
	return list
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}
