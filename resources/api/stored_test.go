// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(clustertest.Wrap(m)) }

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// canary is a field that only the definitions have under which objects are stored: when it is gone, ours are in effect.
const canary = "canary"

// CRD-20 and CRD-E14: TestStoredObjectsAreKept stores objects that use every field of a release's definitions, puts our definitions in their
// place, and demands that every served version shows each field as it was. Kafka rules and the selectors of fromRequires
// are among them.
func TestStoredObjectsAreKept(t *testing.T) {
	for _, r := range releases {
		t.Run(r.version, func(t *testing.T) {
			references := referenceDefinitions(t, r.version) // skips
			s := newStore(t)
			s.clear()
			for name, reference := range references {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					store{t, s.Interface}.keeps(name, r, reference)
				})
			}
		})
	}
}

// store is a cluster whose definitions the test owns.
type store struct {
	t *testing.T
	dynamic.Interface
}

func newStore(t *testing.T) store {
	t.Helper()
	config := clustertest.Shared(t).AdminConfig(t)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.Proxy = http.ProxyFromEnvironment // keeps the transport out of client-go's cache
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	made, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	return store{t, made}
}

// clear deletes all definitions, one by one: objects of those that are deleted as a collection stay in etcd.
func (s store) clear() {
	s.t.Helper()
	waittest.Until(s.t, "no definition is there", func() bool {
		list, err := s.Resource(definitions).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, definition := range list.Items {
			err := s.Resource(definitions).Delete(s.t.Context(), definition.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.t.Fatal(err)
			}
		}
		return len(list.Items) == 0
	})
}

// keeps stores an object in each version of a definition of a release, and looks at them through ours.
func (s store) keeps(name string, r release, reference tree) {
	g := generator{rand: rand.New(rand.NewPCG(1, 1))}
	objects := g.objects(reference)
	s.create(permissive(reference))
	for i, object := range objects {
		object["metadata"] = tree{"name": "a" + asText(i), "namespace": metav1.NamespaceDefault}
		if at(reference, "spec", "scope") == "Cluster" {
			object["metadata"] = tree{"name": "a" + asText(i)}
		}
		object[canary] = "alive"
		s.store(reference, object)
	}
	shown := s.shown(reference, objects)
	ours := definitionNamed(s.t, name, r.edition)
	s.replace(ours)
	for _, before := range shown {
		s.shows(ours, before)
		if served := asList(at(reference, "spec", "versions")); len(served) == 1 {
			for _, version := range asList(at(ours, "spec", "versions")) {
				before = runtime.DeepCopyJSON(before)
				before["apiVersion"] = "cilium.io/" + asTree(version)["name"].(string)
				s.shows(ours, before)
			}
		}
	}
	if r.version != "1.17" { // whose operator has the fault that objects in v2 are out of its sight
		s.replace(parse(s.t, name, []byte(asText(tree{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": tree{"name": name}, "spec": reference["spec"]}))))
	}
}

func (s store) create(definition tree) {
	if _, err := s.Resource(definitions).Create(s.t.Context(), &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{}); err != nil {
		s.t.Error(err)
	}
}

// store creates an object as soon as its kind is served.
func (s store) store(definition, object tree) {
	waittest.Until(s.t, "an object is stored", func() bool {
		_, err := s.at(definition, object).Create(s.t.Context(), &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			s.t.Errorf("%s: %v", object["kind"], err)
		}
		return !apierrors.IsNotFound(err)
	})
}

func (s store) replace(definition tree) {
	name := at(definition, "metadata", "name").(string)
	waittest.Until(s.t, name+" is replaced", func() bool {
		found, err := s.Resource(definitions).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		found.Object["spec"] = runtime.DeepCopyJSON(definition)["spec"]
		_, err = s.Resource(definitions).Update(s.t.Context(), found, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			s.t.Errorf("%s is not replaced: %v", name, err)
		}
		return !apierrors.IsConflict(err)
	})
}

// shown returns each object in each version of its definition. What a write in one version lost of it is not in the others.
func (s store) shown(definition tree, objects []tree) []tree {
	var all []tree
	for _, object := range objects {
		for _, version := range asList(at(definition, "spec", "versions")) {
			wanted := runtime.DeepCopyJSON(object)
			wanted["apiVersion"] = "cilium.io/" + asTree(version)["name"].(string)
			waittest.Until(s.t, "the object is shown", func() bool {
				got, err := s.at(definition, wanted).Get(s.t.Context(), at(wanted, "metadata", "name").(string), metav1.GetOptions{})
				if err != nil {
					return false
				}
				delete(got.Object, canary)
				got.Object["metadata"] = wanted["metadata"]
				all = append(all, got.Object)
				return true
			})
		}
	}
	return all
}

// shows demands that an object has all that was shown before. It may have defaults besides.
func (s store) shows(definition, want tree) {
	what := strings.Join([]string{want["kind"].(string), at(want, "metadata", "name").(string), "in", want["apiVersion"].(string)}, " ")
	var found tree
	waittest.Until(s.t, what+" is shown by our definition", func() bool {
		got, err := s.at(definition, want).Get(s.t.Context(), at(want, "metadata", "name").(string), metav1.GetOptions{})
		if err != nil {
			return false
		}
		found = got.Object
		return found[canary] == nil
	})
	if !contains(found, want) {
		s.t.Errorf("%s is not what it was (-before +after):\n%s", what, cmp.Diff(want, found))
	}
}

func (s store) at(definition, object tree) dynamic.ResourceInterface {
	_, version, _ := strings.Cut(object["apiVersion"].(string), "/")
	resource := s.Resource(schema.GroupVersionResource{
		Group: "cilium.io", Version: version, Resource: at(definition, "spec", "names", "plural").(string),
	})
	if namespace, isNamespaced := at(object, "metadata", "namespace").(string); isNamespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// contains reports whether a value has all that another has.
func contains(whole, part any) bool {
	switch part := part.(type) {
	case tree:
		whole, isObject := whole.(tree)
		for key, value := range part {
			if found, exists := whole[key]; !exists || !contains(found, value) {
				return false
			}
		}
		return isObject
	case []any:
		return slices.EqualFunc(asList(whole), part, contains)
	}
	return cmp.Equal(whole, part)
}

// permissive is a definition with the same fields that accepts whatever the types allow, as objects out of a generator are,
// and that stores status with the rest.
func permissive(reference tree) tree {
	definition := runtime.DeepCopyJSON(tree{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": tree{"name": at(reference, "metadata", "name")}, "spec": reference["spec"],
	})
	for _, version := range asList(at(definition, "spec", "versions")) {
		version := asTree(version)
		delete(version, "subresources")
		whole := asTree(at(version, "schema", "openAPIV3Schema"))
		accept := func(schema tree) {
			for key := range schema {
				if !slices.Contains([]string{"type", "properties", "items", "additionalProperties", "nullable",
					"x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"}, key) {
					delete(schema, key)
				}
			}
		}
		eachSchema(whole, accept)
		asTree(whole["properties"])[canary] = tree{"type": "string"}
	}
	return definition
}

// eachSchema visits a schema and all below it.
func eachSchema(schema tree, visit func(tree)) {
	visit(schema)
	for _, property := range asTree(schema["properties"]) {
		eachSchema(asTree(property), visit)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if child := asTree(schema[key]); child != nil {
			eachSchema(child, visit)
		}
	}
}

// CRD-21 and CRD-E15: TestStoredVersions puts our definitions over those of 1.17: seven kinds are stored in v2 from then on.
func TestStoredVersions(t *testing.T) {
	s := newStore(t)
	s.clear()
	for name, reference := range referenceDefinitions(t, "1.17") {
		kind, _ := api.KindNamed(at(reference, "spec", "names", "kind").(string))
		if kind.Older == "" || kind.Name == "CiliumNodeConfig" {
			continue
		}
		s.create(permissive(reference))
		s.replace(definitionNamed(t, name, releases[1].edition))
		waittest.Until(t, name+" has stored in both versions", func() bool {
			found, err := s.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false
			}
			stored, _, _ := unstructured.NestedStringSlice(found.Object, "status", "storedVersions")
			return slices.Equal(stored, []string{"v2alpha1", "v2"})
		})
	}
}
