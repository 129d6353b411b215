// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// K8S-9: identities that are deleted as fast as they are made are made less and less often.
func TestContentionOverAnIdentity(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	identities := w.dynamic.Resource(v2.CiliumIdentityResource)
	other := operatortest.Revert(t, identities, func(ctx context.Context, u *unstructured.Unstructured) bool {
		return identities.Delete(ctx, u.GetName(), metav1.DeleteOptions{}) == nil
	})
	w.pod("web-1", pairs{"app": "web"})
	operatortest.Eventually(t, "it is named", func() bool { return strings.Contains(o.Degraded("identity"), "contention") })
	if n := other.Reverted(); n > 10 {
		t.Errorf("%d identities were made and deleted", n)
	}
	other.Stop()
	w.made(w.with(pairs{"app": "web"}))
}
