// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// ENV-10 and ING-16, with 5 % errors and watches that are cut, while Ingresses and Services come, change and go: each
// configuration that is ever written is valid and refers to clusters that it has, and in the end all is as it is to be.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	changes, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Watch(t.Context(), metav1.ListOptions{})
	w.must(err)
	checked, done := atomic.Int64{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range changes.ResultChan() {
			u, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			text, err := json.Marshal(u.Object["spec"])
			if err == nil {
				_, err = envoytest.VerifyJSON(text)
			}
			if err != nil {
				t.Errorf("%s: %v", u.GetName(), err)
			}
			checked.Add(1)
		}
	}()
	errors := w.Proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{}, Probability: 0.05, Status: &clustertest.Status{Code: 500}})
	cuts := w.Proxy.CutWatchesEvery(t, 300*time.Millisecond, clustertest.Match{})
	o := w.start("--ingress-default-lb-mode=shared")

	r := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	const many = 8
	backends := []string{"front", "api", "auth", "img", "fallback"}
	for n := 0; n < 120 || errors.Hits(t) < 5 || cuts.Hits(t) < 3 || checked.Load() < 10; n++ {
		if n == 5_000 {
			t.Fatalf("%d errors, %d cuts, %d configurations were checked", errors.Hits(t), cuts.Hits(t), checked.Load())
		}
		name := fmt.Sprint("i-", r.IntN(many))
		api := w.Core.NetworkingV1().Ingresses(w.Namespace)
		_, err := api.Get(t.Context(), name, metav1.GetOptions{})
		switch service := backends[r.IntN(len(backends))]; {
		case apierrors.IsNotFound(err):
			w.apply(simple(name, name+".example.com", service))
		case n%10 == 0:
			w.must(api.Delete(t.Context(), name, metav1.DeleteOptions{}))
		case n%7 == 0:
			w.annotate(name, "loadbalancer-mode", []string{"dedicated", "shared"}[r.IntN(2)])
		case n%5 == 0:
			if w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), service, metav1.DeleteOptions{}) != nil {
				w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
			}
		default:
			w.patch(name, fmt.Sprintf(`{"spec":{"rules":[{"host":"%s.example.com","http":{"paths":[{"path":"/p%d","pathType":"Prefix","backend":{"service":{"name":%q,"port":{"number":80}}}}]}}]}}`, name, n, service))
		}
	}
	errors.Remove(t)
	cuts.Remove(t)
	for i := range many { // one Ingress that is known, beside whatever the others have become
		name := fmt.Sprint("i-", i)
		_ = w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		w.apply(simple(name, name+".example.com", "last"))
	}
	w.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "last"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	for i := range many {
		w.awaitRoutes(w.shared, fmt.Sprintf("i-%d.example.com", i), "/ → NS:last:80")
		w.awaitDedicated(fmt.Sprint("i-", i), false)
	}
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("ingress") == "" })
	changes.Stop()
	<-done
}
