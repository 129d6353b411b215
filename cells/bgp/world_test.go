// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"context"
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
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// world is the BGP objects and CiliumNodes of a real API server.
type world struct {
	*operatortest.Env
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode", "CiliumBGPClusterConfig", "CiliumBGPNodeConfig",
		"CiliumBGPNodeConfigOverride", "CiliumBGPPeerConfig")}
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

// create creates an object from YAML without apiVersion.
func (w *world) create(kind string, texts ...string) *unstructured.Unstructured {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(overlay(w.T, texts...)), &u.Object); err != nil {
		w.T.Fatal(err)
	}
	gvr := resources[kind]
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
	if _, err := w.Dynamic.Resource(resources[kind]).Patch(w.T.Context(), name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) delete(kind, name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(resources[kind]).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// dropIfThere deletes an object that may have gone.
func (w *world) dropIfThere(kind, name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(resources[kind]).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.T.Fatal(err)
	}
}

// get is an object, nil if there is none.
func (w *world) get(kind, name string) *unstructured.Unstructured {
	w.T.Helper()
	u, err := w.Dynamic.Resource(resources[kind]).Get(w.T.Context(), name, metav1.GetOptions{})
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

// serveConditions has the definitions of a kind a status with conditions, as newer ones, until the test ends.
func (w *world) serveConditions(kinds ...string) {
	w.T.Helper()
	client := w.Dynamic.Resource(definitions)
	for _, kind := range kinds {
		name := resources[kind].GroupResource().String()
		before, err := client.Get(w.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.T.Fatal(err)
		}
		now := before.DeepCopy()
		versions, _, _ := unstructured.NestedSlice(now.Object, "spec", "versions")
		version := versions[0].(map[string]any)
		version["subresources"] = map[string]any{"status": map[string]any{}}
		properties := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
		properties["status"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		_ = unstructured.SetNestedSlice(now.Object, versions, "spec", "versions")
		if _, err := client.Update(w.T.Context(), now, metav1.UpdateOptions{}); err != nil {
			w.T.Fatal(err)
		}
		w.T.Cleanup(func() {
			current, err := client.Get(context.Background(), name, metav1.GetOptions{})
			if err == nil {
				current.Object["spec"] = before.Object["spec"]
				_, err = client.Update(context.Background(), current, metav1.UpdateOptions{})
			}
			if err != nil {
				w.T.Error(err)
			}
		})
		w.awaitStatus(kind)
	}
}

// v2 is a kind in the version v2, after serveV2.
func (w *world) v2(kind string) dynamic.ResourceInterface {
	return w.Dynamic.Resource(resources[kind].GroupResource().WithVersion("v2"))
}

func (w *world) createV2(kind string, text string) {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		w.T.Fatal(err)
	}
	u.SetAPIVersion("cilium.io/v2")
	u.SetKind(kind)
	u.SetUID("")
	u.SetResourceVersion("")
	if _, err := w.v2(kind).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// serveV2 adds the version v2 to the definitions of kinds, as that which is stored. References to CiliumBGPPeerConfigs are names
// there. It stays for later tests: a version that was stored cannot be removed.
func (w *world) serveV2(kinds ...string) {
	w.T.Helper()
	client := w.Dynamic.Resource(definitions)
	for _, kind := range kinds {
		u, err := client.Get(w.T.Context(), resources[kind].GroupResource().String(), metav1.GetOptions{})
		if err != nil {
			w.T.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		if len(versions) > 1 {
			continue
		}
		newer := (&unstructured.Unstructured{Object: versions[0].(map[string]any)}).DeepCopy().Object
		newer["name"] = "v2"
		versions[0].(map[string]any)["storage"] = false
		onlyNames(newer)
		_ = unstructured.SetNestedSlice(u.Object, append(versions, newer), "spec", "versions")
		if _, err := client.Update(w.T.Context(), u, metav1.UpdateOptions{}); err != nil {
			w.T.Fatal(err)
		}
		operatortest.Eventually(w.T, "v2 of "+kind+" is served", func() bool {
			_, err := w.v2(kind).List(w.T.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
}

// onlyNames removes group and kind from the schemas of references.
func onlyNames(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		for name, field := range schema {
			if name == "peerConfigRef" {
				properties := field.(map[string]any)["properties"].(map[string]any)
				delete(properties, "group")
				delete(properties, "kind")
			}
			onlyNames(field)
		}
	case []any:
		for _, field := range schema {
			onlyNames(field)
		}
	}
}

// awaitStatus waits until the API server serves the status of a kind.
func (w *world) awaitStatus(kind string) {
	w.T.Helper()
	operatortest.Eventually(w.T, "the status of "+kind+" is served", func() bool {
		_, err := w.Dynamic.Resource(resources[kind]).Get(w.T.Context(), "nothing", metav1.GetOptions{}, "status")
		return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "nothing")
	})
}
