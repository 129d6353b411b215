// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/referencetest"
)

// world is the BGP objects and CiliumNodes of a real API server.
type world struct {
	*operatortest.Env
	version string // in which the test asks for the BGP kinds
}

var bgpKinds = []string{"CiliumBGPClusterConfig", "CiliumBGPNodeConfig", "CiliumBGPNodeConfigOverride", "CiliumBGPPeerConfig"}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), append(bgpKinds, "CiliumNode")...), v2.SchemeGroupVersion.Version}
	w.Clear(clusterConfigs.Resource(), overrides.Resource(), peerConfigs.Resource(), nodeConfigs.Resource(), v2.CiliumNodeResource)
	return w
}

// start runs an operator with the duty.
func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startAs(w.Kubeconfig(), args...)
}

func (w *world) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	w.T.Helper()
	o := operatortest.Start(w.T, Cell, kubeconfig, append([]string{enabled}, args...)...)
	o.Log().Wait(w.T, "caches synced, writing CiliumBGPNodeConfigs")
	return o
}

var resources = map[string]schema.GroupVersionResource{
	"CiliumBGPClusterConfig": clusterConfigs.Resource(), "CiliumBGPNodeConfigOverride": overrides.Resource(), "CiliumBGPNodeConfig": nodeConfigs.Resource(),
	"CiliumBGPPeerConfig": peerConfigs.Resource(), "CiliumNode": v2.CiliumNodeResource,
}

// resource is a kind in the version in which the test asks for it.
func (w *world) resource(kind string) schema.GroupVersionResource {
	if kind == "CiliumNode" {
		return resources[kind]
	}
	return resources[kind].GroupResource().WithVersion(w.version)
}

// create creates an object from YAML without apiVersion.
func (w *world) create(kind string, texts ...string) *unstructured.Unstructured {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(overlay(w.T, texts...)), &u.Object); err != nil {
		w.T.Fatal(err)
	}
	gvr := w.resource(kind)
	u.SetAPIVersion(gvr.GroupVersion().String())
	u.SetKind(kind)
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetCreationTimestamp(metav1.Time{})
	stored, err := w.Dynamic.Resource(gvr).Create(w.T.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return stored
}

// node creates a CiliumNode with labels such as {rack: r1}.
func (w *world) node(name, labels string) {
	w.T.Helper()
	w.create("CiliumNode", fmt.Sprintf("{metadata: {name: %s, labels: %s}, spec: {}}", name, labels))
}

func (w *world) patch(kind, name, patch string) {
	w.T.Helper()
	raw, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		w.T.Fatal(err)
	}
	if _, err := w.Dynamic.Resource(w.resource(kind)).Patch(w.T.Context(), name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) delete(kind, name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(w.resource(kind)).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// dropIfThere deletes an object that may have gone.
func (w *world) dropIfThere(kind, name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(w.resource(kind)).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.T.Fatal(err)
	}
}

// get is an object, nil if there is none.
func (w *world) get(kind, name string) *unstructured.Unstructured {
	w.T.Helper()
	u, err := w.Dynamic.Resource(w.resource(kind)).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return u
}

// ownerOf is the owner of the CiliumBGPNodeConfig of a node, "" if there is none.
func (w *world) ownerOf(name string) string {
	w.T.Helper()
	u := w.get("CiliumBGPNodeConfig", name)
	if u == nil {
		return ""
	}
	var owners []string
	for _, o := range u.GetOwnerReferences() {
		owners = append(owners, o.Name)
	}
	return strings.Join(owners, " ")
}

// owners waits for the owners of the CiliumBGPNodeConfigs, by node.
func (w *world) owners(want map[string]string) {
	w.T.Helper()
	var got map[string]string
	defer func() {
		if w.T.Failed() {
			w.T.Log(cmp.Diff(want, got))
		}
	}()
	operatortest.Eventually(w.T, fmt.Sprintf("owners are %v", want), func() bool {
		got = map[string]string{}
		for name := range want {
			got[name] = w.ownerOf(name)
		}
		return cmp.Equal(want, got)
	})
}

// routers waits for the routers of a CiliumBGPNodeConfig.
func (w *world) routers(name, want string) {
	w.T.Helper()
	text := normalize(w.T, want)
	var got []byte
	defer func() {
		if w.T.Failed() {
			w.T.Log(cmp.Diff(text, string(got)))
		}
	}()
	operatortest.Eventually(w.T, name+" has the routers", func() bool {
		u := w.get("CiliumBGPNodeConfig", name)
		if u == nil {
			return false
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "spec", "bgpInstances")
		var err error
		got, err = yaml.Marshal(list)
		return err == nil && string(got) == text
	})
}

// normalize returns a list as YAML in one form.
func normalize(t testing.TB, text string) string {
	t.Helper()
	var list []any
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	form, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(form)
}

// conditions waits for the conditions of an object, each as its type, status and message.
func (w *world) conditions(kind, name string, want ...string) {
	w.T.Helper()
	var got []string
	defer func() {
		if w.T.Failed() {
			w.T.Log(cmp.Diff(want, got))
		}
	}()
	operatortest.Eventually(w.T, fmt.Sprintf("the conditions of %s are %q", name, want), func() bool {
		got = nil
		list, _, _ := unstructured.NestedSlice(w.get(kind, name).Object, "status", "conditions")
		for _, c := range list {
			fields := c.(map[string]any)
			got = append(got, strings.TrimSpace(fmt.Sprint(fields["type"], " ", fields["status"], " ", fields["message"])))
		}
		return slices.Equal(got, want)
	})
}

// writes are the mutating requests after the one with a number, and the number of the last request.
func (w *world) writes(after int64) (texts []string, last int64) {
	w.T.Helper()
	last = after
	for _, r := range w.Proxy.Answered(w.T, after) {
		last = r.Seq
		if strings.HasPrefix(r.Resource, "cilium") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			texts = append(texts, strings.TrimSuffix(fmt.Sprintf("%s %s/%s/%s", r.Verb, r.Resource, r.Name, r.Subresource), "/"))
		}
	}
	return texts, last
}

// onlyWrites checks that an operator that has started writes nothing but what a node asks for that is created now: the work queue
// has come so far by then.
func (w *world) onlyWrites(after int64) {
	w.T.Helper()
	w.node("last", "{rack: r1}")
	operatortest.Eventually(w.T, "the last node is served", func() bool { return w.ownerOf("last") != "" })
	if texts, _ := w.writes(after); len(texts) != 1 || !strings.HasPrefix(texts[0], "create ciliumbgpnodeconfigs") {
		w.T.Errorf("a restart wrote %q", texts)
	}
}

// define has the definitions of a release of the original in place of ours, until the test ends. What was there is deleted.
func (w *world) define(release string) *operatortest.Definitions {
	w.T.Helper()
	texts := referencetest.Definitions(w.T, release)
	definitions := operatortest.NewDefinitions(w.T, clustertest.Shared(w.T))
	var names []string
	for _, kind := range bgpKinds {
		names = append(names, resources[kind].GroupResource().String())
	}
	definitions.Delete(names...)
	w.T.Cleanup(func() { definitions.Delete(names...) }) // the next test has ours
	for _, name := range names {
		definitions.Apply(texts[name])
	}
	return definitions
}

// served waits until the API server serves the kinds in a version, in which the test asks for them from now on.
func (w *world) served(version string) {
	w.T.Helper()
	w.version = version
	for _, kind := range bgpKinds {
		operatortest.Eventually(w.T, kind+" is served in "+version, func() bool {
			_, err := w.Dynamic.Resource(w.resource(kind)).List(w.T.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
}
