// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"flag"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// The properties against a real API server, and against what one has answered.
//
//	go test ./resources/stream -run 'TestRealServer/(core|custom)' -record
//
// makes the recordings anew.
var record = flag.Bool("record", false, "record what the real server answers, for TestRecorded")

func recordingPath(kind string) string { return "testdata/recorded-" + kind + ".json.gz" }

func TestRecorded(t *testing.T) {
	for kind, declared := range map[string]stream.Kind[streamtest.Thing]{
		"core": streamtest.CoreThings(), "custom": streamtest.CustomThings(),
	} {
		t.Run(kind, func(t *testing.T) {
			recording, err := streamtest.LoadRecording(recordingPath(kind))
			if err != nil {
				t.Fatal(err)
			}
			streamtest.Run(t, streamtest.ReplayRig(recording, declared))
		})
	}
}

func TestRealServer(t *testing.T) {
	cluster := clustertest.Shared(t)
	for kind, custom := range map[string]bool{"core": false, "custom": true} {
		t.Run(kind, func(t *testing.T) {
			r := newRealRig(t, cluster, custom)
			if *record {
				r.recording = streamtest.Recording{}
			}
			streamtest.Run(t, r.rig())
			if *record && !t.Failed() {
				if err := r.recording.Save(recordingPath(kind)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRealServerWithoutWatchList(t *testing.T) {
	cluster := clustertest.Start(t, clustertest.WithoutWatchList())
	t.Run("core", func(t *testing.T) { streamtest.Run(t, newRealRig(t, cluster, false).rig()) })
	t.Run("custom", func(t *testing.T) { streamtest.Run(t, newRealRig(t, cluster, true).rig()) })
}

// realRig makes worlds on a real cluster, a namespace and a proxy each.
type realRig struct {
	cluster   *clustertest.Cluster
	admin     dynamic.Interface
	gvr       schema.GroupVersionResource
	kind      stream.Kind[streamtest.Thing]
	new       func(namespace, name, value string) *unstructured.Unstructured
	recording streamtest.Recording
}

func newRealRig(t *testing.T, cluster *clustertest.Cluster, custom bool) *realRig {
	r := &realRig{cluster: cluster, admin: newAdmin(t, cluster), gvr: streamtest.ConfigMaps, kind: streamtest.CoreThings(), new: streamtest.NewConfigMap}
	if custom {
		r.gvr, r.kind, r.new = streamtest.Widgets, streamtest.CustomThings(), streamtest.NewWidget
		define(t, r.admin)
	}
	return r
}

// newAdmin returns a client that goes straight to the server.
func newAdmin(t *testing.T, cluster *clustertest.Cluster) dynamic.Interface {
	t.Helper()
	config := cluster.AdminConfig(t)
	client := httpClient(t, config)
	admin, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return admin
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

func (r *realRig) rig() streamtest.Rig {
	return streamtest.Rig{Open: r.open, Quiet: 60 * time.Millisecond, Has: streamtest.Faculties{Server: true, Faults: true}}
}

func (r *realRig) open(t *testing.T, property string, opts ...stream.Option) *streamtest.World {
	namespace := streamtest.RealNamespace(property)
	r.makeNamespace(t, namespace)
	tape := &streamtest.Tape{}
	if r.recording != nil {
		r.recording[property] = tape
	}
	proxy := r.cluster.NewProxy(t)
	config := proxy.AdminConfig(t)
	client := httpClient(t, config)
	client.Transport = tape.Record(client.Transport)
	source := stream.NewSource(streamtest.ConnectWith(config, client))
	open := func(kind stream.Kind[streamtest.Thing]) *stream.Stream[streamtest.Thing] {
		s, err := stream.New(source, kind, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	kind := streamtest.RealKind(r.kind, property)
	s := open(kind)
	objects := r.admin.Resource(r.gvr).Namespace(namespace)
	match := clustertest.Match{Resources: []string{r.gvr.Resource}}
	w := &streamtest.World{
		Resource: s, Close: s.Close, Namespace: namespace,
		Put: func(name, value string) slim.Revision {
			tape.Begin()
			return tape.Wrote(put(t, objects, r.new(namespace, name, value)))
		},
		Delete: func(name string) {
			tape.Begin()
			if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		},
		Requests: func() streamtest.Count { return requestsThrough(t, proxy, r.gvr.Resource) },
		Cut: func() {
			tape.Begin()
			onceOpen(t, func() int { return proxy.CutWatches(t, match) })
		},
		Expire: func() {
			tape.Begin()
			onceOpen(t, func() int { return proxy.ExpireWatches(t, match) })
		},
		Restrict: func(labels string) stream.Resource[streamtest.Thing] { return open(kind.MatchingLabels(labels)) },
		Missed: func(change func()) {
			tape.Begin()
			away := proxy.Answer(t, http.StatusServiceUnavailable, match)
			proxy.CutWatches(t, match) // or it is refused when it comes
			change()
			tape.Begin()
			expired := match
			expired.Verbs = []string{"watch"}
			proxy.Rule(t, clustertest.Rule{Match: expired, Times: 1, Status: &clustertest.Status{Code: http.StatusGone}})
			away.Remove(t)
		},
		Hold: func() func() {
			proxy.BlackHole(t)
			return func() { proxy.Heal(t) }
		},
		Busy: func() { streamtest.EverySecond(t, r.writeSecret(t, namespace)) },
		Away: func() func() {
			proxy.Refuse(t)
			proxy.Cut(t)
			return func() { proxy.Heal(t) }
		},
	}
	return w
}

// onceOpen breaks a watch, which may not be there yet when a list was before it.
func onceOpen(t *testing.T, breakWatches func() int) {
	t.Helper()
	waittest.Until(t, "there is a watch to break", func() bool { return breakWatches() > 0 })
}

func (r *realRig) makeNamespace(t *testing.T, name string) {
	t.Helper()
	namespaces := r.admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(name)
	if _, err := namespaces.Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	r.awaitFurnished(t, name)
	objects := r.admin.Resource(r.gvr).Namespace(name)
	left, err := objects.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range left.Items {
		if err := objects.Delete(t.Context(), obj.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// writeSecret returns what writes another secret each time.
func (r *realRig) writeSecret(t *testing.T, namespace string) func(context.Context) {
	secrets := r.admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(namespace)
	return func(ctx context.Context) {
		secret := &unstructured.Unstructured{}
		secret.SetAPIVersion("v1")
		secret.SetKind("Secret")
		secret.SetGenerateName("busy-")
		if _, err := secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

// awaitFurnished waits until a namespace has what the controller manager puts into each:
// nothing may come into it, unasked, while a property counts what comes.
func (r *realRig) awaitFurnished(t *testing.T, namespace string) {
	t.Helper()
	for resource, name := range map[string]string{"configmaps": "kube-root-ca.crt", "serviceaccounts": "default"} {
		objects := r.admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace)
		until(t, namespace+" has "+name, func() bool {
			_, err := objects.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		})
	}
}

// put creates or replaces an object.
func put(t *testing.T, objects dynamic.ResourceInterface, obj *unstructured.Unstructured) slim.Revision {
	t.Helper()
	done, err := objects.Create(t.Context(), obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var current *unstructured.Unstructured
		if current, err = objects.Get(t.Context(), obj.GetName(), metav1.GetOptions{}); err == nil {
			obj.SetResourceVersion(current.GetResourceVersion()) // which custom resources want
			done, err = objects.Update(t.Context(), obj, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		t.Errorf("put %s: %v", obj.GetName(), err)
		return 0
	}
	// The server's cache, from which lists may come, is behind the answer for a moment.
	if _, err := objects.Get(t.Context(), obj.GetName(), metav1.GetOptions{ResourceVersion: done.GetResourceVersion()}); err != nil {
		t.Errorf("read %s as it was put: %v", obj.GetName(), err)
	}
	revision, err := slim.ParseRevision(done.GetResourceVersion())
	if err != nil {
		t.Error(err)
	}
	return revision
}

func requestsThrough(t *testing.T, proxy *clustertest.Proxy, resource string) (n streamtest.Count) {
	t.Helper()
	for _, r := range proxy.Requests(t, 0) {
		switch {
		case r.Resource != resource:
		case strings.Contains(r.Path, "sendInitialEvents=true"):
			n.Initial++
		case r.Verb == "watch":
			n.Watches++
		case r.Verb == "list" && strings.Contains(r.Path, "metadata.name%3D"):
			n.Named++
		case r.Verb == "list":
			n.Lists++
		}
	}
	return n
}

// define creates the CustomResourceDefinition of widgets and waits until it is
// served.
func define(t *testing.T, admin dynamic.Interface) {
	t.Helper()
	crd := streamtest.WidgetDefinition()
	if _, err := admin.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	waittest.Until(t, "widgets are served", func() bool {
		_, err := admin.Resource(streamtest.Widgets).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}
