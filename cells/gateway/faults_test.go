// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

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

// GW-21 and GW-27, with 5 % errors and watches that are cut, while routes and Services come, change and go: each configuration
// that is ever written is valid and refers to clusters that it has, and in the end all is as it is to be.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
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
	o := w.start()

	r := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	const many = 6
	api := w.Dynamic.Resource(httpRoutes.Resource()).Namespace(w.Namespace)
	for n := 0; n < 80 || errors.Hits(t) < 5 || cuts.Hits(t) < 3 || checked.Load() < 5; n++ {
		if n == 5_000 {
			t.Fatalf("%d errors, %d cuts, %d configurations were checked", errors.Hits(t), cuts.Hits(t), checked.Load())
		}
		name, service := fmt.Sprint("r-", r.IntN(many)), []string{"v1", "v2"}[r.IntN(2)]
		_, err := api.Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			w.apply(httpRoutes.Resource(), httpRouteTo(name, name+".example.com", service))
		case n%10 == 0:
			w.delete(httpRoutes.Resource(), name)
		case n%5 == 0:
			if w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), service, metav1.DeleteOptions{}) != nil {
				w.service(w.Namespace, service)
			}
		default:
			w.patch(httpRoutes.Resource(), name, fmt.Sprintf(`{"spec":{"rules":[{"matches":[{"path":{"type":"Exact","value":"/p%d"}}],"backendRefs":[{"name":%q,"port":80}]}]}}`, n, service))
		}
	}
	errors.Remove(t)
	cuts.Remove(t)
	w.service(w.Namespace, "last")
	var want []string
	for i := range many { // one route that is known, whatever became of the others
		name := fmt.Sprint("r-", i)
		_ = api.Delete(t.Context(), name, metav1.DeleteOptions{})
		w.apply(httpRoutes.Resource(), httpRouteTo(name, name+".example.com", "last"))
		want = append(want, name+".example.com/ → NS:last:80")
	}
	w.awaitRoutes(config, "insecure", want...)
	for i := range many {
		w.awaitAccepted(httpRoutes.Resource(), fmt.Sprint("r-", i), httpOK)
		w.awaitResolved(httpRoutes.Resource(), fmt.Sprint("r-", i), resolvedOK)
	}
	w.await("the routes are counted", fmt.Sprintf(listenerOK, many), func() string { return w.listener("edge", "http") })
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("gateway") == "" })
	changes.Stop()
	<-done
}

// GW-27: many routes of one Gateway cost few writes of its status.
func TestManyRoutes(t *testing.T) {
	w := newWorld(t)
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.start()
	w.awaitGateway("edge", "Accepted", "True Accepted: Gateway successfully scheduled")
	const many = 150
	began := time.Now()
	for i := range many {
		w.apply(httpRoutes.Resource(), httpRouteTo(fmt.Sprint("r-", i), fmt.Sprintf("r-%d.example.com", i), "v1"))
	}
	w.await("all are counted", fmt.Sprintf(listenerOK, many), func() string { return w.listener("edge", "http") })
	took := time.Since(began)
	statuses, configs := 0, 0
	for _, text := range w.writes() {
		switch text {
		case "update gateways/status edge":
			statuses++
		case "update ciliumenvoyconfigs/ " + config:
			configs++
		}
	}
	t.Logf("%d routes in %s: %d writes of the status of the Gateway, %d of its configuration", many, took, statuses, configs)
	if limit := 3 + int(took/countPause); statuses > limit {
		t.Errorf("%d writes of the status of the Gateway in %s, more than %d", statuses, took, limit)
	}
	if limit := 3 + int(took/writePause); configs > limit {
		t.Errorf("%d writes of the configuration in %s, more than %d", configs, took, limit)
	}
}
