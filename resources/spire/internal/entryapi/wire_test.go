// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package entryapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

var entry = Entry{
	ID: "e1", SPIFFEID: ID{"spiffe.cilium", "/identity/300"}, ParentID: ID{"spiffe.cilium", "/cilium-operator"},
	Selectors: []Selector{{"cilium", "mutual-auth"}, {"k8s", "ns:default"}},
}

// Fields that are not known are skipped, of whatever type and in whatever place.
func TestUnknownFields(t *testing.T) {
	unknown := func(b []byte) []byte {
		b = protowire.AppendVarint(protowire.AppendTag(b, 90, protowire.VarintType), 7)
		b = protowire.AppendFixed32(protowire.AppendTag(b, 91, protowire.Fixed32Type), 7)
		b = protowire.AppendFixed64(protowire.AppendTag(b, 92, protowire.Fixed64Type), 7)
		return protowire.AppendString(protowire.AppendTag(b, 93, protowire.BytesType), "seven")
	}
	var got Entry
	if err := got.unmarshal(unknown(append(unknown(nil), entry.marshal()...))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(entry, got); diff != "" {
		t.Error(diff)
	}
}

// A message that is cut off is an error or a part of the message, and never a panic.
func FuzzUnmarshal(f *testing.F) {
	whole := appendMessage(nil, resultEntry, entry.marshal())
	whole = appendMessage(whole, resultStatus, appendString(protowire.AppendVarint(protowire.AppendTag(nil, statusCode, protowire.VarintType), 13), statusMessage, "no"))
	for n := range whole {
		f.Add(whole[:n])
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var created, deleted Result
		_ = created.unmarshalCreated(b)
		_ = deleted.unmarshalDeleted(b)
	})
}
