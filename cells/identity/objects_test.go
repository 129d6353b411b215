// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// decoded is an identity as a stream decodes it.
func decoded(t *testing.T, text string) *ciliumio.Identity {
	t.Helper()
	codec, err := slim.JSON[ciliumio.Identity]()
	if err != nil {
		t.Fatal(err)
	}
	o := &ciliumio.Identity{}
	if err := codec.DecodeJSON([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// ID-33: the number of an identity whose labels cannot be decoded is held. Of one
// that was decoded before, the labels are still known.
func TestLabelsThatCannotBeDecoded(t *testing.T) {
	tb, _ := plan(t, "shop")
	tb.now = time.Now()
	tb.upsertObject(decoded(t, `{"metadata":{"name":"256","resourceVersion":"5"},"security-labels":{"k8s:app":7}}`))
	of := slim.MakeLabels(map[string]string{"k8s:app": "web"})
	s := tb.ensureSet(of)
	tb.addPods(s, 1)
	if !tb.allocateNumber(s) || s.number != 257 { // the lowest that is free
		t.Errorf("number %d is drawn", s.number)
	}
	tb.nextAction(of)
	tb.recordCreate(of, observation{number: 257, labels: of, revision: 6}, true)
	tb.upsertObject(decoded(t, `{"metadata":{"name":"257","resourceVersion":"7"},"security-labels":"none"}`))
	if !s.exists || s.number != 257 || len(s.objects) != 1 {
		t.Errorf("the set has %d, which exists: %t", s.number, s.exists)
	}
	if step := tb.nextAction(of); step.number != 0 {
		t.Errorf("it makes %d", step.number)
	}
	tb.upsertObject(decoded(t, `{"metadata":{"name":"257","resourceVersion":"8"},"security-labels":{"k8s:app":"web"}}`))
	tb.deleteObject("256", 9)
	if step := tb.nextAction(of); step.number != 0 || tb.objects[256] != nil || !s.exists {
		t.Errorf("it makes %d", step.number)
	}
}

// hidden are endpoints that cannot be decoded.
type hidden struct {
	endpointIndex
	keys []slim.Key
}

func (h *hidden) undecodable() []slim.Key { return h.keys }

// ID-34: numbers do not end their rest while endpoints cannot be decoded, which may
// have them.
func TestNumbersRestWhileEndpointsCannotBeDecoded(t *testing.T) {
	m := &controller{}
	if m.endpointsUndecodable() {
		t.Error("no object tells which numbers endpoints have")
	}
	endpoints := &hidden{keys: []slim.Key{{Name: "web"}}}
	m.Endpoints = endpoints
	if !m.endpointsUndecodable() {
		t.Error("one cannot be decoded")
	}
	endpoints.keys = nil
	if m.endpointsUndecodable() {
		t.Error("all can be decoded")
	}
}

// ID-35: what identities of pods depend upon, and cannot be decoded, is told to
// duties that delete identities.
func TestWhole(t *testing.T) {
	m := &controller{}
	if err := m.Whole(); err != nil {
		t.Error(err)
	}
	var hidden []slim.Key
	m.addSource(source{"Pod", func() []slim.Key { return hidden }})
	m.addSource(source{"Pod", func() []slim.Key { return hidden }}) // a view that is opened again
	if err := m.Whole(); err != nil {
		t.Error(err)
	}
	hidden = []slim.Key{{Namespace: "shop", Name: "web"}}
	const want = `1 objects of kind Pod cannot be decoded, pods may have any identity; repair or delete them, at first "shop/web"`
	if err := m.Whole(); err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
}
