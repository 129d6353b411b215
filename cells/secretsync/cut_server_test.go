// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cells/ingress"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/runtime/cell"
)

// SEC-19; K3 of the contract's tenants.md: an Ingress that is cut when the operator starts may refer to any Secret of its namespace. Their copies stay and follow
// them, and those of other namespaces go that nothing refers to.
func TestCopiesOfWhatIsCut(t *testing.T) {
	was := renameGrace
	t.Cleanup(func() { renameGrace = was }) // after the operators have stopped
	renameGrace = 2 * time.Second
	w := newWorld(t)
	w.secret("large-tls", "one")
	w.largeIngress("large", "large-tls")
	start := func(memory int64) *operatortest.Operator {
		return operatortest.Setup{Memory: memory}.Start(t, cell.Set(ingress.Cell, Cell), w.Kubeconfig(), w.args()...)
	}
	o := start(0)
	w.awaitCopy("the Secret is copied", "large-tls", "one")
	o.Stop()

	left := secretref.Object{Kind: secretref.Secret}
	left.Namespace, left.Name = "default", w.Namespace
	copyOfLeft := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: left.CopyName(), Labels: map[string]string{
		secretref.NamespaceKey(left.Kind): left.Namespace, secretref.NameKey(left.Kind): left.Name,
	}}}
	_, err := w.Core.CoreV1().Secrets(left.Namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: left.Name}}, metav1.CreateOptions{})
	w.must(err)
	defer func() {
		w.must(w.Core.CoreV1().Secrets(left.Namespace).Delete(t.Context(), left.Name, metav1.DeleteOptions{}))
	}()
	_, err = w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), copyOfLeft, metav1.CreateOptions{})
	w.must(err)

	o = start(14 * 40 << 10)
	w.awaitEvent("the Ingress is cut", "LeftOut", "large")
	operatortest.Eventually(t, "a copy is deleted that nothing refers to", func() bool {
		_, err := w.Core.CoreV1().Secrets(w.copies).Get(t.Context(), copyOfLeft.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if w.copy("large-tls") == nil {
		t.Error("the copy was deleted to which an Ingress refers that is cut")
	}
	w.patchSecret(w.Namespace, "large-tls", `{"data":{"tls.crt":"dHdv"}}`)
	w.awaitCopy("the copy follows its Secret", "large-tls", "two")
	w.removeIngress("large")
	w.awaitNone("without the Ingress there is no copy", "large-tls")
	o.Stop()
}

// largeIngress has a thousand paths.
func (w *world) largeIngress(name, secret string) {
	w.T.Helper()
	w.ingress(name, secret)
	i, err := w.Core.NetworkingV1().Ingresses(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	w.must(err)
	http := i.Spec.Rules[0].HTTP
	for n := range 1000 {
		path := http.Paths[0]
		path.Path = fmt.Sprintf("/%060d", n)
		http.Paths = append(http.Paths, path)
	}
	_, err = w.Core.NetworkingV1().Ingresses(w.Namespace).Update(w.T.Context(), i, metav1.UpdateOptions{})
	w.must(err)
}

// What is unknown of objects is counted by namespace, as long as they refer to nothing that is known.
func TestUnknownReferences(t *testing.T) {
	r := newReferences()
	object := func(namespace string) (of secretref.Object) {
		of.Kind, of.Namespace, of.Name = secretref.Secret, namespace, "s"
		return of
	}
	from := func(name, uid string) reference {
		ref := reference{source: "ingresses"}
		ref.from.Namespace, ref.from.Name, ref.from.UID = "a", name, types.UID(uid)
		return ref
	}
	check := func(what string, own, named bool) {
		t.Helper()
		if got := r.mayBeTo(object("a"), false); got != own {
			t.Errorf("%s: of its namespace %t", what, got)
		}
		if got := r.mayBeTo(object("b"), true); got != named {
			t.Errorf("%s: of another namespace that is named %t", what, got)
		}
		if r.mayBeTo(object("b"), false) {
			t.Errorf("%s: of another namespace", what)
		}
	}
	check("at first", false, false)
	r.isUnknown(from("i", "1"))
	r.isUnknown(from("i", "2"))
	r.isUnknown(from("j", "3"))
	check("two are unknown", true, true)
	r.set(from("i", "2"), []secretref.Object{object("a")})
	check("one is unknown", true, true)
	r.set(from("j", "3"), nil)
	check("none is unknown", false, false)
	r.isUnknown(from("i", "2"))
	check("what was known is kept", false, false)
	if !r.has(object("a")) {
		t.Error("it keeps what it referred to")
	}
	r.set(from("i", "2"), nil)
	if r.has(object("a")) {
		t.Error("it refers to something after it is gone")
	}
}
