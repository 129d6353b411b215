// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"runtime"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

// K8S-24, K8S-26: a spec with too many entries is decoded neither by a watch nor before a write, and both have one digest for it.
func TestDigestOfVastSpecs(t *testing.T) {
	specOf := func(n int) []byte { return []byte(`{"resources":[` + strings.Repeat(`{"a":0},`, n) + `{}]}`) }
	vast := specOf(maxEntries)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	digest, isVast, err := digestOf(vast)
	var spec Spec
	watchErr := spec.UnmarshalJSON(vast)
	runtime.ReadMemStats(&after)
	if err != nil || watchErr != nil || !isVast || !spec.isVast || digest != spec.Digest {
		t.Errorf("vast %v and %v, equal digests %v: %v, %v", isVast, spec.isVast, digest == spec.Digest, err, watchErr)
	}
	if size := after.TotalAlloc - before.TotalAlloc; size > 1<<20 {
		t.Errorf("%d bytes are allocated", size)
	}
	usual := specOf(3)
	digest, isVast, err = digestOf(usual)
	if want, wantErr := envoy.DigestOf(usual); err != nil || wantErr != nil || isVast || digest != want {
		t.Errorf("vast %v, as decoded %v: %v, %v", isVast, digest == want, err, wantErr)
	}
}

// GW-63: a spec that another writer has made too large is not edited.
func TestSpecsThatAreTooLargeToEdit(t *testing.T) {
	for n, want := range map[int]string{3: "", maxEdited - 1: "", maxEdited: tooLargeToEdit, maxEntries: tooLargeToEdit} {
		got, err := editedSpec([]byte(`{"resources":[` + strings.Repeat(`{},`, n-1) + `{}]}`))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%d: %q, %v", n, got, err)
		}
	}
}
