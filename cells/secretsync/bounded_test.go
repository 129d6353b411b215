// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"testing"

	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// SEC-16, K8S-23: the first Secrets of an object count, each once.
func TestReferencesAreBounded(t *testing.T) {
	var to []secretref.Object
	for i := range 3 * mostReferences {
		to = append(to, secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: "a", Name: fmt.Sprint("s", i/2)}})
	}
	kept, beyond := bounded(to)
	if len(kept) != mostReferences || beyond != mostReferences/2 || kept[0].Name != "s0" || kept[mostReferences-1].Name != fmt.Sprint("s", mostReferences-1) {
		t.Errorf("%d are kept, %d are not: %v", len(kept), beyond, kept[:2])
	}
	if kept, beyond = bounded(to[:10]); len(kept) != 10 || beyond != 0 {
		t.Errorf("of 10, %d are kept, %d are not", len(kept), beyond)
	}
}
