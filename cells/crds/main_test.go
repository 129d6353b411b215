// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/crds"
	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// ourVersion is the version of our schemas.
var ourVersion = api.Edition{}.SchemaVersion()

// world is an empty cluster and a door of its own.
type world struct {
	t     *testing.T
	proxy *clustertest.Proxy
	admin apiextensionsclient.CustomResourceDefinitionInterface
}

func newWorld(t *testing.T, link ...clustertest.Link) *world {
	t.Helper()
	c := clustertest.Shared(t)
	config := c.AdminConfig(t)
	admin, err := apiextensionsclient.NewForConfigAndClient(config, operatortest.HTTPClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, c.NewProxy(t, link...), admin.CustomResourceDefinitions()}
	w.clear()
	return w
}

// clear deletes all definitions.
func (w *world) clear() {
	w.t.Helper()
	if err := w.admin.DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		w.t.Fatal(err)
	}
	operatortest.Eventually(w.t, "all definitions are gone", func() bool { return len(w.list()) == 0 })
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

// create creates a CRD as another writer, and waits until the server has
// processed it.
func (w *world) create(crd *apiextensionsv1.CustomResourceDefinition) {
	w.t.Helper()
	if _, err := w.admin.Create(w.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	operatortest.Eventually(w.t, crd.Name+" has conditions", func() bool { return len(w.get(crd.Name).Status.Conditions) > 1 })
}

func (w *world) update(name string, edit func(*apiextensionsv1.CustomResourceDefinition)) {
	w.t.Helper()
	operatortest.Eventually(w.t, name+" is updated", func() bool {
		crd := w.get(name)
		edit(crd)
		_, err := w.admin.Update(w.t.Context(), crd, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
		return err == nil
	})
}

// accepted waits until the server has processed an edit of names, which it writes to the status.
func (w *world) accepted(name string) {
	w.t.Helper()
	operatortest.Eventually(w.t, "the server has accepted the names of "+name, func() bool {
		crd := w.get(name)
		return equality.Semantic.DeepEqual(crd.Status.AcceptedNames.ShortNames, crd.Spec.Names.ShortNames)
	})
}

// ours is our definition of a kind.
func ours(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	k, known := api.KindNamed(kind)
	if !known {
		t.Fatalf("there is no kind %s", kind)
	}
	crd, err := k.CRD(api.Edition{})
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
	*operatortest.Operator
	t      *testing.T
	onDuty func() // when another duty of the term starts
}

// start enters a term; it returns when other cells of the term would start.
func start(t *testing.T, kubeconfig string, args ...string) *operator {
	t.Helper()
	o := build(t, kubeconfig, args...)
	o.Run()
	return o
}

func build(t *testing.T, kubeconfig string, args ...string) *operator {
	t.Helper()
	o := &operator{t: t, onDuty: func() {}}
	duty := cell.Module("test.duty", "Is a duty of the term", cell.Hook("work", func() lifecycle.Hook {
		return lifecycle.Funcs{OnStart: func(context.Context) error { o.onDuty(); return nil }}
	}))
	var err error
	args = append([]string{"--cilium-release=1.17"}, args...) // unless a test says another
	if o.Operator, err = operatortest.New(t, cell.Set(duty, crds.Cell), kubeconfig, args...); err != nil {
		t.Fatal(err)
	}
	return o
}

// logged are the messages of the cell, each with its attributes.
func (o *operator) logged() string { return strings.Join(o.Messages("crds"), "\n") }

// count is how many messages of the cell have all the words.
func (o *operator) count(words ...string) int {
	return len(slices.DeleteFunc(o.Messages("crds"), func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
	}))
}

// degraded is what is degraded in the cell, and why.
func (o *operator) degraded() string { return o.Degraded("crds") }

// results are what the metric tells, by definition: installed version and result.
func (o *operator) results() map[string]string {
	o.t.Helper()
	results := map[string]string{}
	for _, m := range o.Samples("crd_schema_info") {
		results[m.Label("crd")] = m.Label("installed") + " " + m.Label("result")
	}
	return results
}

// registered waits until something became of so many definitions, and of each
// of them something good. On a slow machine the term is entered before that.
func (o *operator) registered(n int) *operator {
	o.t.Helper()
	operatortest.Eventually(o.t, "all is registered", func() bool {
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
