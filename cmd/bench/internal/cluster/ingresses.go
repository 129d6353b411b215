// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of Ingresses that share a load balancer, at each number of them.
const (
	ingressCreated  = "Ingresses, until the last was created"
	ingressLast     = "the last created → all programmed"
	ingress50       = "one edit → CiliumEnvoyConfig, p50"
	ingress99       = "one edit → CiliumEnvoyConfig, p99"
	ingressCPU      = "CPU of the operator for each edit"
	ingressIdle     = "writes in five idle seconds"
	ingressRestarts = "writes of a restart"
)

func (b Bench) ingressCounts() []int { return b.counts(200, 1000) }

func (b Bench) ingressesContest() contest.Contest {
	c := contest.Contest{
		Name: "ingresses", Title: "Ingresses that share a load balancer",
		Note: "Each Ingress has a host with a path, all with one backend. An edit changes the path of one; twenty are made, a second apart. " +
			"Times are between events of watches of the bench: of the Ingress, and of the CiliumEnvoyConfig that has the path. One round. " +
			"The recorded figures are of 200 Ingresses on two cores.",
		Contestants: contestants,
	}
	for _, n := range b.ingressCounts() {
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(ingressCreated, n), Unit: "s"},
			contest.Measure{Name: scaled(ingressLast, n), Unit: "s", Budget: contest.Budget{AtMost: 5}},
			contest.Measure{Name: scaled(ingress50, n), Unit: "ms"},
			contest.Measure{Name: scaled(ingress99, n), Unit: "ms", Budget: contest.Budget{AtMost: 50}},
			contest.Measure{Name: scaled(ingressCPU, n), Unit: "ms"},
			contest.Measure{Name: scaled(ingressIdle, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(ingressRestarts, n), Budget: contest.Budget{Nothing: true}},
		)
	}
	return c
}

// recordedIngresses are those of the original for 200 Ingresses.
func (b Bench) recordedIngresses() contest.Figures {
	if b.Quick {
		return nil
	}
	return contest.Figures{scaled(ingress50, 200): 63, scaled(ingress99, 200): 219}
}

var (
	envoyConfigs   = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumenvoyconfigs"}
	ingressFlags   = []string{"--ipam=kubernetes", "--enable-envoy-config", "--enable-ingress-controller", "--kube-proxy-replacement=true", "--ingress-default-lb-mode=shared"}
	ingressBackend = "backend"
)

const (
	ingressNamespace = "bench-ingresses"
	ingressEdits     = 20
)

// ingresses measures how fast the shared configuration follows Ingresses.
func (b Bench) ingresses(ctx context.Context, record func(contest.Figures)) error {
	for _, n := range b.ingressCounts() {
		err := b.onDuty(ctx, ingressFlags, []schema.GroupVersionResource{envoyConfigs}, func(ctx context.Context, p *plane, o *operator) error {
			i := &ingresses{Bench: b, plane: p, operator: o, n: n, edited: newSightings[string](), programmed: newSightings[string](), record: record}
			if err := i.follow(ctx); err != nil {
				return err
			}
			return i.measure(ctx)
		})
		if err != nil {
			return fmt.Errorf("%d Ingresses: %w", n, err)
		}
	}
	return nil
}

// ingresses are those that the bench makes, and when their paths were in them and in the shared configuration.
type ingresses struct {
	Bench
	plane              *plane
	operator           *operator
	n                  int
	edited, programmed *sightings[string] // by path
	record             func(contest.Figures)
}

func (i *ingresses) follow(ctx context.Context) error {
	err := i.plane.follow(ctx, listWatch(i.plane.core.NetworkingV1().Ingresses(ingressNamespace), metav1.ListOptions{}), func(_ watch.EventType, obj runtime.Object) {
		i.edited.record(time.Now(), obj.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths[0].Path)
	})
	if err != nil {
		return err
	}
	return i.plane.followKind(ctx, envoyConfigs, func(_ watch.EventType, u *unstructured.Unstructured) {
		i.programmed.record(time.Now(), pathsOf(u.Object)...)
	})
}

// pathsOf are the texts in a configuration that begin with /bench-.
func pathsOf(of any) (paths []string) {
	switch v := of.(type) {
	case map[string]any:
		for _, one := range v {
			paths = append(paths, pathsOf(one)...)
		}
	case []any:
		for _, one := range v {
			paths = append(paths, pathsOf(one)...)
		}
	case string:
		if strings.HasPrefix(v, "/bench-") {
			paths = append(paths, v)
		}
	}
	return paths
}

func (i *ingresses) measure(ctx context.Context) error {
	if err := i.create(ctx); err != nil {
		return err
	}
	if err := i.edits(ctx); err != nil {
		return err
	}
	idle, err := i.writesIn(ctx, i.operator)
	if err != nil {
		return err
	}
	i.operator.end(syscall.SIGTERM)
	o, err := i.run(ctx, i.plane, "operator-1", slices.Concat(raised, ingressFlags)...)
	if err != nil {
		return err
	}
	defer o.end(syscall.SIGKILL)
	if err := o.waits(ctx, true); err != nil {
		return err
	}
	restart, err := i.writesIn(ctx, o)
	if err != nil {
		return err
	}
	i.record(contest.Figures{scaled(ingressIdle, i.n): idle, scaled(ingressRestarts, i.n): restart})
	return nil
}

// writesIn counts the writes of an operator to what this duty writes, up to the end of a window that begins now.
func (i *ingresses) writesIn(ctx context.Context, o *operator) (count float64, err error) {
	began := time.Now()
	if err := sleep(ctx, window); err != nil {
		return 0, err
	}
	requests, err := i.plane.requests(o.user, began)
	if err != nil {
		return 0, err
	}
	for _, kind := range []schema.GroupVersionResource{envoyConfigs, coreServices, networkingv1.SchemeGroupVersion.WithResource("ingresses")} {
		writes, conflicts := writesTo(requests, kind)
		count += float64(len(writes) + conflicts)
	}
	return count, nil
}

// create creates the Ingresses as fast as the API server takes them.
func (i *ingresses) create(ctx context.Context) error {
	i.Progress(fmt.Sprintf("creating %d Ingresses", i.n))
	core := i.plane.core
	if _, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ingressNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	backend := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: ingressBackend}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := core.CoreV1().Services(ingressNamespace).Create(ctx, backend, metav1.CreateOptions{}); err != nil {
		return err
	}
	began := time.Now()
	err := paced(ctx, 0, i.n, func(ctx context.Context, at int) error {
		_, err := core.NetworkingV1().Ingresses(ingressNamespace).Create(ctx, benchIngress(at), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	paths := numbered("/bench", i.n)
	made, err := i.edited.wait(ctx, paths)
	if err != nil {
		return err
	}
	programmed, err := i.programmed.wait(ctx, paths)
	if err != nil {
		return err
	}
	i.record(contest.Figures{scaled(ingressCreated, i.n): seconds(began, made), scaled(ingressLast, i.n): seconds(latest(made), programmed)})
	return nil
}

func benchIngress(at int) *networkingv1.Ingress {
	exact := networkingv1.PathTypeExact
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bench-", at)},
		Spec: networkingv1.IngressSpec{IngressClassName: new("cilium"), Rules: []networkingv1.IngressRule{{
			Host: fmt.Sprintf("host-%d.example.com", at),
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: fmt.Sprint("/bench-", at), PathType: &exact,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: ingressBackend, Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}},
		}}},
	}
}

// edits changes the path of one Ingress after the other.
func (i *ingresses) edits(ctx context.Context) error {
	i.Progress(fmt.Sprintf("%d Ingresses: editing %d", i.n, ingressEdits))
	before, err := i.operator.cpu()
	if err != nil {
		return err
	}
	paths := numbered("/bench-edit", ingressEdits)
	for at, path := range paths {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/rules/0/http/paths/0/path","value":%q}]`, path)
		name := benchIngress(at * i.n / ingressEdits).Name
		if _, err := i.plane.core.NetworkingV1().Ingresses(ingressNamespace).Patch(ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	edited, err := i.edited.wait(ctx, paths)
	if err != nil {
		return err
	}
	programmed, err := i.programmed.wait(ctx, paths)
	if err != nil {
		return err
	}
	after, err := i.operator.cpu()
	late := delays(edited, programmed)
	i.record(contest.Figures{
		scaled(ingress50, i.n): 1000 * percentile(late, .5), scaled(ingress99, i.n): 1000 * percentile(late, .99),
		scaled(ingressCPU, i.n): 1000 * (after - before) / ingressEdits,
	})
	return err
}
