// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
)

func wide(endpoints int) *v2alpha1.CiliumEndpointSlice {
	s := &v2alpha1.CiliumEndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cilium.io/v2alpha1", Kind: "CiliumEndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: "ces-x", UID: "u", ResourceVersion: "5"},
		Namespace:  "shop", Endpoints: []v2alpha1.CoreCiliumEndpoint{},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, v2alpha1.CoreCiliumEndpoint{
			Name: fmt.Sprint("web-", i), IdentityID: 12345,
			Networking: &v2.EndpointNetworking{NodeIP: "192.168.0.2", Addressing: []v2.AddressPair{{IPv4: "10.0.1.5"}}},
			NamedPorts: []v2.NamedPort{{Name: "http", Port: 8080, Protocol: "TCP"}},
		})
	}
	return s
}

func TestEncode(t *testing.T) {
	const start = `{"apiVersion":"cilium.io/v2alpha1","endpoints":`
	const end = `,"kind":"CiliumEndpointSlice","metadata":{"name":"ces-x","resourceVersion":"5","uid":"u"},"namespace":"shop"}`
	for endpoints, want := range map[int]string{
		0: `[]`,
		1: `[{"name":"web-0","id":12345,"networking":{"addressing":[{"ipv4":"10.0.1.5"}],"node":"192.168.0.2"},"encryption":{},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}]`,
	} {
		encoded, err := encode(wide(endpoints))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(encoded.Object); string(got) != start+want+end || err != nil {
			t.Errorf("%d endpoints are\n%s, want\n%s (%v)", endpoints, got, start+want+end, err)
		}
	}
}

// What is allocated does not grow with the endpoints. One allocation for each would be 99
// more; a few are for larger buffers, which the race detector drops from their pools at
// random.
func TestEncodeIsLean(t *testing.T) {
	allocations := func(endpoints int) float64 {
		s := wide(endpoints)
		return testing.AllocsPerRun(20, func() {
			if _, err := encode(s); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, many := allocations(1), allocations(100); many > one+50 {
		t.Errorf("%v allocations for 1 endpoint, %v for 100", one, many)
	}
}

// oneSlice is a client of a server with one slice.
type oneSlice struct {
	k8s.Client
	slice string
	sent  *unstructured.Unstructured
}

func (s *oneSlice) Get(context.Context, k8s.Ref) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON([]byte(s.slice))
}

func (s *oneSlice) Update(_ context.Context, _ schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	s.sent = obj.(*unstructured.Unstructured)
	return s.sent, nil
}

// CES-27: of endpoints that cannot be decoded a slice goes on to say what it says,
// letter by letter, if it is as it was seen.
func TestUpdateCopies(t *testing.T) {
	s := &oneSlice{slice: `{"apiVersion":"cilium.io/v2alpha1","kind":"CiliumEndpointSlice","metadata":{"name":"ces-x","uid":"u","resourceVersion":"5"},"namespace":"shop",
		"endpoints":[{"name":"old","id":7},{"name":"web-0","id":9,"newer":{"a":[1,"b"]}},{"name":"web-1","id":8}]}`}
	if _, _, err := (api{s}).update(t.Context(), wide(2), []string{"web-0"}); err != nil {
		t.Fatal(err)
	}
	const want = `[{"id":9,"name":"web-0","newer":{"a":[1,"b"]}},{"name":"web-1","id":12345,"networking":{"addressing":[{"ipv4":"10.0.1.5"}],"node":"192.168.0.2"},"encryption":{},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]}]`
	if got, err := json.Marshal(s.sent.Object["endpoints"]); string(got) != want || err != nil {
		t.Errorf("it is\n%s, want\n%s (%v)", got, want, err)
	}
	s.slice, s.sent = strings.Replace(s.slice, `"resourceVersion":"5"`, `"resourceVersion":"6"`, 1), nil
	if _, _, err := (api{s}).update(t.Context(), wide(2), []string{"web-0"}); !isStale(err, refOf("ces-x")) || s.sent != nil {
		t.Errorf("a slice that has changed is written: %v, %v", s.sent, err)
	}
	s.slice = strings.NewReplacer(`"resourceVersion":"6"`, `"resourceVersion":"5"`, "web-0", "web-9").Replace(s.slice)
	if _, _, err := (api{s}).update(t.Context(), wide(2), []string{"web-0"}); err == nil || s.sent != nil {
		t.Errorf("what is to stay is not there: %v, %v", s.sent, err)
	}
}
