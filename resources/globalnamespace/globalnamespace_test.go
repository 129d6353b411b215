// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package globalnamespace

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/metrics"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell, kvstoretest.Unreachable()...) }

// on is the options of a cluster whose Namespaces are global by default, or not.
func on(byDefault bool) cluster.Config {
	return cluster.Config{ClusterMeshDefaultGlobalNamespace: byDefault}
}

// GNS-1, GNS-2 and GNS-4; number B19 of the contract's bgp.md, and 26 of its service-sync.md: the annotation decides, or else the default.
func TestDecide(t *testing.T) {
	huge := strings.Repeat("true", 50_000)
	for value, test := range map[string]struct{ byDefault, otherwise, valid bool }{
		"absent": {true, false, true},
		"true":   {true, true, true}, "TRUE": {true, true, true}, "1": {false, false, false},
		"false": {false, false, true}, "False": {false, false, true}, "0": {false, false, false},
		"": {false, false, false}, "yes": {false, false, false}, " true": {false, false, false}, "\x00\xff": {false, false, false}, huge: {false, false, false},
	} {
		namespaces, err := stream.NewLocal[slim.Namespace]()
		if err != nil {
			t.Fatal(err)
		}
		n := &slim.Namespace{}
		n.Name = "shop"
		if value != "absent" {
			n.Annotations.Labels = slim.MakeLabels(map[string]string{Annotation: value})
		}
		namespaces.Replace(n)
		store, err := namespaces.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for byDefault, want := range map[bool]bool{true: test.byDefault, false: test.otherwise} {
			isGlobal, valid := decide(n.Annotations.Labels, byDefault)
			if isGlobal != want || valid != test.valid {
				t.Errorf("%s, by default %t: global %t, valid %t", short(value), byDefault, isGlobal, valid)
			}
			if scope := Of(store, "shop", on(byDefault)); (scope == Global) != want || scope == Unknown {
				t.Errorf("%s, by default %t: scope %d", short(value), byDefault, scope)
			}
		}
	}
}

// GNS-3: a Namespace that was not seen, or cannot be decoded, is unknown, whatever the default is.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, gvr := streamtest.NewServer(), stream.Namespaces.Resource()
		server.Serve(gvr, "Namespace", false)
		namespaces, err := stream.New(stream.NewSource(server.Connect()), stream.Namespaces)
		if err != nil {
			t.Fatal(err)
		}
		defer namespaces.Close()
		store, err := namespaces.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check := func(byDefault, otherwise Scope) {
			t.Helper()
			synctest.Wait()
			if a, b := Of(store, "shop", on(true)), Of(store, "shop", on(false)); a != byDefault || b != otherwise {
				t.Errorf("the scopes are %d and %d, want %d and %d", a, b, byDefault, otherwise)
			}
		}
		shop := func() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }
		check(Unknown, Unknown)
		server.Put(gvr, shop())
		check(Global, Local)
		damaged := shop()
		damaged.ResourceVersion = (server.Revision() + 1).String()
		message, err := damaged.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		server.PutRaw(gvr, slim.Key{Name: "shop"}, message[:len(message)-1])
		check(Unknown, Unknown)
		server.Put(gvr, shop())
		check(Global, Local)
		server.Delete(gvr, slim.Key{Name: "shop"})
		check(Unknown, Unknown)
	})
}

// GNS-4: an invalid annotation is logged once, however often the Namespace changes, and counted while it is there.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		namespaces, err := stream.NewLocal[slim.Namespace]()
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		r := newReporter(params{Cluster: on(true), Namespaces: namespaces, Metrics: newMetrics(metrics.Factory{}), Log: slog.New(slog.NewTextHandler(&log, nil))})
		go func() { _ = r.watch(t.Context()) }()
		put := func(value string) {
			n := &slim.Namespace{}
			n.Name, n.Annotations.Labels = "shop", slim.MakeLabels(map[string]string{Annotation: value})
			namespaces.Upsert(n)
			synctest.Wait()
		}
		namespaces.Replace()
		for i, step := range []struct {
			value          string
			lines, invalid int
		}{
			{"true", 0, 0}, {"maybe", 1, 1}, {"maybe", 1, 1}, {strings.Repeat("x", 100_000), 2, 1}, {"false", 2, 0}, {"maybe", 3, 1},
		} {
			put(step.value)
			if n := strings.Count(log.String(), "\n"); n != step.lines || len(r.invalid) != step.invalid {
				t.Errorf("step %d: %d lines, and %d invalid", i, n, len(r.invalid))
			}
		}
		namespaces.Delete(slim.Key{Name: "shop"})
		synctest.Wait()
		if len(r.invalid) != 0 || log.Len() > 2000 {
			t.Errorf("%d invalid, and %d bytes of log", len(r.invalid), log.Len())
		}
	})
}

// Number B19 of the contract's bgp.md; GNS-4: on a real API server, the Namespace has an Event, and the metric counts it.
func TestEvent(t *testing.T) {
	t.Parallel()
	w := operatortest.NewEnv(t, clustertest.Shared(t))
	w.CreateNamespace()
	annotate := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, Annotation, value)
		if _, err := w.Core.CoreV1().Namespaces().Patch(t.Context(), w.Namespace, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate(strings.Repeat("nonsense", 20_000))
	o := operatortest.Start(t, cell.Set(kvstore.Cell, Cell), w.Kubeconfig(), "--clustermesh-enable-mcs-api")
	operatortest.Eventually(t, "the Namespace has an Event", func() bool {
		list, err := w.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + w.Namespace})
		return err == nil && len(list.Items) == 1 && list.Items[0].Reason == "InvalidGlobalAnnotation" && len(list.Items[0].Message) < 500
	})
	operatortest.Eventually(t, "the metric", func() bool { return o.Metric("globalnamespace_invalid_annotations") >= 1 })
	invalid := o.Metric("globalnamespace_invalid_annotations") // other tests may have left some
	annotate("true")
	operatortest.Eventually(t, "one less is invalid", func() bool { return o.Metric("globalnamespace_invalid_annotations") == invalid-1 })
	w.CheckHealthy(o)
}
