// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "sigs.k8s.io/json"

	"github.com/skep-operator/skep/resources/api"
)

// rounds is how many objects of each kind and version a property is tried on.
const rounds = 12

// TestRoundTrip takes objects that have every property of the schema, and others that have some,
// through the Go types: no property is unknown, none is lost, none is added.
func TestRoundTrip(t *testing.T) {
	for name, definition := range ourDefinitions(t) {
		t.Run(name, func(t *testing.T) { roundTrip(t, definition) })
	}
}

// TestRoundTripReference does the same with objects of the reference's schemas, which our types have no part in.
func TestRoundTripReference(t *testing.T) {
	for _, r := range releases {
		for name, definition := range referenceDefinitions(t, r.version) {
			t.Run(r.version+" "+name, func(t *testing.T) { roundTrip(t, definition) })
		}
	}
}

func roundTrip(t *testing.T, definition tree) {
	for seed := range uint64(rounds) {
		// The first objects have everything, the later ones less and less.
		g := generator{rand: rand.New(rand.NewPCG(seed, 0)), omit: max(0, float64(seed)-rounds/3) / rounds}
		for _, object := range g.objects(definition) {
			typed := decode(t, object)
			if diff := changes(object, encode(t, typed)); diff != "" {
				t.Fatalf("seed %d: JSON is not what it was (-before +after):\n%s", seed, diff)
			}
			unstructured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if diff := changes(object, unstructured); diff != "" {
				t.Fatalf("seed %d: the unstructured form is not what the JSON was (-before +after):\n%s", seed, diff)
			}
		}
	}
}

// TestRoundTripExamples keeps the examples, whose empty lists, empty objects, zeros and false all mean something.
func TestRoundTripExamples(t *testing.T) {
	for name, object := range examples(t) {
		if diff := changes(object, encode(t, decode(t, object))); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}

// TestEmptinessIsKept keeps what is empty where that differs from absence.
func TestEmptinessIsKept(t *testing.T) {
	for _, text := range []string{
		// An empty peer list selects nothing; an absent one does not select.
		`kind: CiliumNetworkPolicy, spec: {endpointSelector: {}, ingress: [{fromEndpoints: [], fromCIDRSet: []}], egress: [{toCIDRSet: [], toGroups: []}]}`,
		`kind: CiliumNetworkPolicy, spec: {nodeSelector: {}, ingress: [], ingressDeny: [{}], egress: [{}], enableDefaultDeny: {ingress: false, egress: false}}`,
		`kind: CiliumNetworkPolicy, spec: {endpointSelector: {}, ingress: [{icmps: [{fields: [{type: 0}]}], toPorts: [{rules: {http: [], dns: []}}]}]}`,
		// Once looked at, a node that uses no address says so.
		`kind: CiliumNode, spec: {}, status: {ipam: {used: {}}}`,
		`kind: CiliumNode, spec: {eni: {first-interface-index: 0, delete-on-termination: false}}, status: {azure: {interfaces: [{gateway: ""}]}}`,
		`kind: CiliumEndpoint, status: {identity: {}, networking: {addressing: []}, policy: {ingress: {enforcing: false}}}`,
		`kind: CiliumEndpointSlice, endpoints: [{name: a, networking: {addressing: []}, encryption: {}}]`,
		`kind: CiliumEndpointSlice, endpoints: []`,
		`kind: CiliumEnvoyConfig, spec: {services: [{name: a, listener: ""}], nodeSelector: {}}`,
		`kind: CiliumLoadBalancerIPPool, spec: {serviceSelector: {}}`,
		`kind: CiliumBGPAdvertisement, spec: {advertisements: [{advertisementType: PodCIDR, attributes: {localPreference: 0}}]}`,
		`kind: CiliumBGPPeeringPolicy, spec: {virtualRouters: [{localASN: 0, neighbors: [], serviceAdvertisements: []}]}`,
		`kind: CiliumPodIPPool, spec: {}`,
	} {
		object := parse(t, text, []byte("{metadata: {}, "+text+"}"))
		kind, _ := api.KindNamed(object["kind"].(string))
		object["apiVersion"] = kind.Resource.GroupVersion().String()
		if diff := changes(object, encode(t, decode(t, object))); diff != "" {
			t.Errorf("%s (-before +after):\n%s", text, diff)
		}
	}
}

// TestDeepCopy demands that a copy equals the original and shares no memory with it.
func TestDeepCopy(t *testing.T) {
	for name, definition := range ourDefinitions(t) {
		t.Run(name, func(t *testing.T) {
			g := generator{rand: rand.New(rand.NewPCG(1, 0))}
			for _, object := range g.objects(definition) {
				original := decode(t, object)
				duplicate := original.DeepCopyObject()
				if !reflect.DeepEqual(original, duplicate) {
					t.Fatalf("the copy differs: %s", cmp.Diff(original, duplicate))
				}
				held := map[uintptr]string{}
				memory(reflect.ValueOf(original), name, func(at uintptr, path string) { held[at] = path })
				shared := 0
				memory(reflect.ValueOf(duplicate), name, func(at uintptr, path string) {
					if _, isShared := held[at]; isShared {
						shared++
						t.Errorf("%s is shared", path)
					}
				})
				t.Logf("%d pointers, slices and maps looked at", len(held))
			}
		})
	}
}

// memory visits all memory that a value reaches through pointers, slices and maps.
func memory(value reflect.Value, path string, visit func(at uintptr, path string)) {
	switch value.Kind() {
	case reflect.Interface:
		memory(value.Elem(), path, visit)
	case reflect.Pointer:
		// A location stands for a time zone, which times share.
		if !value.IsNil() && value.Type().Elem().String() != "time.Location" {
			visit(value.Pointer(), path)
			memory(value.Elem(), path, visit)
		}
	case reflect.Slice:
		if value.Len() > 0 {
			visit(value.Pointer(), path)
		}
		for i := range value.Len() {
			memory(value.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		if !value.IsNil() {
			visit(value.Pointer(), path)
		}
		for entry := value.MapRange(); entry.Next(); {
			memory(entry.Value(), fmt.Sprintf("%s[%v]", path, entry.Key()), visit)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			memory(value.Field(i), path+"."+value.Type().Field(i).Name, visit)
		}
	}
}

// changes is cmp.Diff for objects that are most often equal.
func changes(before, after tree) string {
	if reflect.DeepEqual(before, after) {
		return ""
	}
	return cmp.Diff(before, after)
}

// ourDefinitions returns our definitions by name, as they are sent to an API server.
func ourDefinitions(t *testing.T) map[string]tree {
	t.Helper()
	definitions := map[string]tree{}
	for _, kind := range api.Kinds() {
		definitions[kind.CRDName()] = definitionOf(t, kind.Name, api.Edition{})
	}
	return definitions
}

// decode reads an object into its Go type and fails on fields that the type does not have.
func decode(t *testing.T, object tree) runtime.Object {
	t.Helper()
	typed, err := scheme().New(schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := kubejson.UnmarshalStrict(text, typed)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range unknown {
		t.Error(err)
	}
	return typed
}

// scheme has our types. Tests only read it.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
})

// encode writes an object as the clients do.
func encode(t *testing.T, typed runtime.Object) tree {
	t.Helper()
	return asJSON(t, typed)
}
