// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// podsUnderFaults are pods of some namespaces that come, finish and go, and what
// agents tell about them. Several duties have to do with the same pods.
type podsUnderFaults struct {
	*turmoil
	tenants *tenants
	pods    []*livingPod
}

// livingPod is a pod, and its endpoint as the agent has left it.
type livingPod struct {
	types.NamespacedName
	endpoint types.UID
	ip       string
	identity string // "" while the agent does not know
	placed   bool   // the kubelet has told the address
}

const mostPods = 40

func newPodsUnderFaults(f *turmoil, t *tenants) *podsUnderFaults {
	p := &podsUnderFaults{turmoil: f, tenants: t}
	for _, namespace := range []string{home, north, south} {
		t.label(namespace, nil)
	}
	// Nothing ever happens to these: the agent of the one never comes, that of the
	// other has been there before.
	t.begin(home, silent, map[string]string{"app": silent})
	labels := map[string]string{"app": settled}
	t.identity(fmt.Sprint(t.numbers.Max), t.set(home, labels))
	p.want(t.endpoint(home, settled, t.begin(home, settled, labels), int64(t.numbers.Max), p.ip()), "the endpoint of pod "+settled)
	return p
}

// Pods are in these namespaces. The first one keeps its labels.
const (
	home  = "home"
	north = "north"
	south = "south"
)

// Pods that stay as they are.
const (
	silent  = "silent"
	settled = "settled"
)

// somewhere is one of the namespaces.
func (p *podsUnderFaults) somewhere() string { return []string{home, north, south}[p.r.IntN(3)] }

// app is a value of a label: one that others have, or, now and then, a new one.
func (p *podsUnderFaults) app() string {
	if p.r.IntN(4) == 0 {
		return fmt.Sprint("new-", p.number())
	}
	return fmt.Sprint("app-", p.r.IntN(6))
}

func (p *podsUnderFaults) ip() string {
	n := p.number()
	return fmt.Sprintf("10.240.%d.%d", n/250%250, n%250+1)
}

func (p *podsUnderFaults) come() {
	if len(p.pods) >= mostPods {
		return
	}
	pod := &livingPod{NamespacedName: types.NamespacedName{Namespace: p.somewhere(), Name: fmt.Sprint("pod-", p.number())}, ip: p.ip()}
	uid := p.tenants.begin(pod.Namespace, pod.Name, map[string]string{"app": p.app()})
	pod.endpoint = p.tenants.endpoint(pod.Namespace, pod.Name, uid, 0, "")
	p.want(pod.endpoint, fmt.Sprintf("the endpoint of pod %s", pod))
	p.pods = append(p.pods, pod)
}

// some is one of the pods that live.
func (p *podsUnderFaults) some() (pod *livingPod, ok bool) {
	i, ok := one(p.r, p.pods)
	if !ok {
		return nil, false
	}
	return p.pods[i], true
}

// end takes a pod out of those that live.
func (p *podsUnderFaults) end(how string, end func(namespace, name string)) {
	pod, ok := p.some()
	if !ok || len(p.pods) < mostPods/2 {
		return
	}
	p.pods = slices.DeleteFunc(p.pods, func(other *livingPod) bool { return other == pod })
	p.condemn(pod.endpoint, fmt.Sprintf("the endpoint of pod %s, which has %s,", pod, how))
	end(pod.Namespace, pod.Name)
}

func (p *podsUnderFaults) finish() { p.end("finished", p.tenants.finish) }
func (p *podsUnderFaults) leave()  { p.end("gone", p.tenants.end) }

// leftOver makes an endpoint without a pod, with the identity of a pod.
func (p *podsUnderFaults) leftOver() {
	name, identity := fmt.Sprint("left-over-", p.number()), 0
	if pod, ok := p.some(); ok {
		identity, _ = strconv.Atoi(pod.identity)
	}
	p.condemn(p.tenants.endpoint(p.somewhere(), name, "", int64(identity), p.ip()), "endpoint "+name)
}

func (p *podsUnderFaults) patchEndpoint(pod *livingPod, patch string) {
	p.patchIfThere(v2.CiliumEndpointResource, pod.Namespace, pod.Name, patch)
}

func (p *podsUnderFaults) lookAt() {
	if pod, ok := p.some(); ok {
		p.patchEndpoint(pod, fmt.Sprintf(`{"metadata":{"labels":{"seen":"%d"}}}`, p.number()))
	}
}

func endpointsUnderFaults(f *turmoil) underFaults {
	p := f.pods
	f.follows(v2.CiliumEndpointResource)
	return underFaults{
		name:  "left-over endpoints",
		churn: []func(){p.come, p.come, p.come, p.finish, p.leave, p.leftOver, p.lookAt},
	}
}
