// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

// proxiesUnderFaults are Ingresses that change their class, load balancer, secret and backend, Services that Envoy balances or
// does not, Secrets that come, go and are edited, and objects of the operator that are edited and deleted by hand.
type proxiesUnderFaults struct {
	*turmoil

	mu      sync.Mutex
	foreign map[string]string // resourceVersions of objects of others
	configs map[string]bool   // CiliumEnvoyConfigs that were seen, by resourceVersion
	copies  map[string]bool   // the same of copies of Secrets
}

const (
	web          = "web"
	webCopies    = "web-copies"
	sharedLB     = "cilium-ingress"
	foreignName  = "web-foreign" // that of the copy of a Secret which no Ingress refers to
	mostProxies  = 4             // of each kind
	byHandLabels = `{"metadata":{"labels":{"by":"hand"}},`
)

var (
	ingressResource = networkingv1.SchemeGroupVersion.WithResource("ingresses")
	secretResource  = corev1.SchemeGroupVersion.WithResource("secrets")
)

func proxiesOf(f *turmoil) underFaults {
	p := &proxiesUnderFaults{turmoil: f, foreign: map[string]string{}, configs: map[string]bool{}, copies: map[string]bool{}}
	args := []string{"--enable-envoy-config", "--enable-ingress-controller", "--kube-proxy-replacement=true", "--loadbalancer-l7=envoy", "--ingress-secrets-namespace=" + webCopies}
	p.world.define("CiliumEnvoyConfig")
	for _, name := range []string{web, webCopies} {
		if _, err := p.core.CoreV1().Namespaces().Create(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
	}
	p.apply(f.namespace, "v1", "Service", services, sharedLB, map[string]any{"spec": map[string]any{
		"type": "LoadBalancer", "loadBalancerClass": foreignClass, "allocateLoadBalancerNodePorts": false, "ports": ports(80),
	}})
	p.makeForeign(webCopies, secretResource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": foreignName}, "data": map[string]any{"a": "YQ=="},
	}})
	p.makeForeign(web, v2.CiliumEnvoyConfigResource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEnvoyConfig", "metadata": map[string]any{"name": foreignName}, "spec": map[string]any{"resources": []any{}},
	}})
	for i := range mostProxies {
		p.service(i)
		p.secret(i)
		p.ingress(i)
	}
	f.witness(v2.CiliumEnvoyConfigResource, p.seeConfig)
	f.witness(secretResource, p.seeSecret)
	return underFaults{
		name: "Ingresses, Services of Envoy, and secrets",
		args: args,
		churn: []func(){
			p.oneIngress, p.oneIngress, p.oneIngress, p.dropIngress, p.oneService, p.oneService, p.dropService,
			p.oneSecret, p.oneSecret, p.dropSecret, p.address, p.spoilConfig, p.dropConfig, p.spoilCopy, p.dropCopy,
		},
		newTerm: func() { p.oneIngress(); p.dropSecret(); p.dropCopy(); p.dropConfig() },
		last:    func() { p.address(); p.oneIngress(); p.oneSecret(); p.dropCopy() },
		rest:    p.rest,
		missing: p.missing,
		end:     p.end,
	}
}

func ports(numbers ...int64) (all []any) {
	for _, n := range numbers {
		all = append(all, map[string]any{"name": fmt.Sprint("p", n), "port": n, "protocol": "TCP"})
	}
	return all
}

func (p *proxiesUnderFaults) makeForeign(namespace string, resource schema.GroupVersionResource, u *unstructured.Unstructured) {
	p.t.Helper()
	made, err := p.dynamic.Resource(resource).Namespace(namespace).Create(p.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.foreign[resource.Resource] = made.GetResourceVersion()
	p.want(made.GetUID(), "a foreign object of "+resource.Resource)
	p.follows(resource)
}

// apply creates an object or sets its fields, as its user.
func (p *proxiesUnderFaults) apply(namespace, apiVersion, kind string, resource schema.GroupVersionResource, name string, content map[string]any) {
	p.t.Helper()
	content["apiVersion"], content["kind"] = apiVersion, kind
	u := &unstructured.Unstructured{Object: content}
	u.SetName(name)
	_, err := p.dynamic.Resource(resource).Namespace(namespace).Apply(p.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "user", Force: true})
	if err != nil {
		p.t.Error(err)
	}
}

func (p *proxiesUnderFaults) drop(resource schema.GroupVersionResource, namespace, name string) {
	err := p.dynamic.Resource(resource).Namespace(namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.t.Error(err)
	}
}

// ingress writes an Ingress of any class, load balancer, secret and backend.
func (p *proxiesUnderFaults) ingress(i int) {
	mode, class := []string{"shared", "dedicated"}[p.r.IntN(2)], []string{"cilium", "cilium", "cilium", "nginx"}[p.r.IntN(4)]
	backend, secret := fmt.Sprint("backend-", p.r.IntN(mostProxies)), fmt.Sprint("tls-", p.r.IntN(mostProxies))
	host := fmt.Sprintf("host-%d.example.com", i)
	p.apply(web, "networking.k8s.io/v1", "Ingress", ingressResource, fmt.Sprint("ingress-", i), map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"ingress.cilium.io/loadbalancer-mode": mode, "ingress.cilium.io/service-type": "NodePort"}},
		"spec": map[string]any{
			"ingressClassName": class,
			"tls":              []any{map[string]any{"hosts": []any{host}, "secretName": secret}},
			"rules": []any{map[string]any{"host": host, "http": map[string]any{"paths": []any{map[string]any{
				"path": "/", "pathType": "Prefix", "backend": map[string]any{"service": map[string]any{"name": backend, "port": map[string]any{"number": int64(80)}}},
			}}}}},
		},
	})
}

// service writes a Service with one port or two, which Envoy balances or not.
func (p *proxiesUnderFaults) service(i int) {
	balanced, numbers := []string{"enabled", "disabled"}[p.r.IntN(2)], [][]int64{{80}, {80, 81}}[p.r.IntN(2)]
	p.apply(web, "v1", "Service", services, fmt.Sprint("backend-", i), map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"service.cilium.io/lb-l7": balanced}},
		"spec":     map[string]any{"ports": ports(numbers...)},
	})
}

func (p *proxiesUnderFaults) secret(i int) {
	value := base64.StdEncoding.EncodeToString(fmt.Append(nil, p.number()))
	p.apply(web, "v1", "Secret", secretResource, fmt.Sprint("tls-", i), map[string]any{
		"type": "kubernetes.io/tls", "data": map[string]any{"tls.crt": value, "tls.key": value},
	})
}

func (p *proxiesUnderFaults) oneIngress() { p.ingress(p.r.IntN(mostProxies)) }
func (p *proxiesUnderFaults) oneService() { p.service(p.r.IntN(mostProxies)) }
func (p *proxiesUnderFaults) oneSecret()  { p.secret(p.r.IntN(mostProxies)) }

func (p *proxiesUnderFaults) dropIngress() {
	p.drop(ingressResource, web, fmt.Sprint("ingress-", p.r.IntN(mostProxies)))
}

func (p *proxiesUnderFaults) dropService() {
	p.drop(services, web, fmt.Sprint("backend-", p.r.IntN(mostProxies)))
}

func (p *proxiesUnderFaults) dropSecret() {
	p.drop(secretResource, web, fmt.Sprint("tls-", p.r.IntN(mostProxies)))
}

// address gives the shared load balancer another address.
func (p *proxiesUnderFaults) address() {
	p.patchIfThere(services, p.namespace, sharedLB, fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.%d"}]}}}`, p.r.IntN(200)), "status")
}

// configName is that of one of the operator's CiliumEnvoyConfigs, whether it exists or not.
func (p *proxiesUnderFaults) configName() (namespace, name string) {
	i := p.r.IntN(mostProxies)
	switch p.r.IntN(3) {
	case 0:
		return p.namespace, sharedLB
	case 1:
		return web, fmt.Sprint("cilium-ingress-web-ingress-", i)
	}
	return web, fmt.Sprint("cilium-envoy-lb-backend-", i)
}

func (p *proxiesUnderFaults) spoilConfig() {
	namespace, name := p.configName()
	p.patchIfThere(v2.CiliumEnvoyConfigResource, namespace, name, byHandLabels+`"spec":{"backendServices":[]}}`)
}

func (p *proxiesUnderFaults) dropConfig() {
	namespace, name := p.configName()
	p.drop(v2.CiliumEnvoyConfigResource, namespace, name)
}

func copyName(i int) string { return fmt.Sprint("web-tls-", i) }

func (p *proxiesUnderFaults) spoilCopy() {
	p.patchIfThere(secretResource, webCopies, copyName(p.r.IntN(mostProxies)), byHandLabels+`"data":{"tls.crt":"eA==","more":"eA=="}}`)
}

func (p *proxiesUnderFaults) dropCopy() {
	p.drop(secretResource, webCopies, copyName(p.r.IntN(mostProxies)))
}

// seeConfig judges each state of each CiliumEnvoyConfig: it is valid, and refers to nothing that it does not define.
func (p *proxiesUnderFaults) seeConfig(kind watch.EventType, u *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.GetName() == foreignName {
		p.judgeForeign(v2.CiliumEnvoyConfigResource, u)
		return
	}
	if kind == watch.Deleted {
		return
	}
	p.configs[u.GetResourceVersion()] = true
	text, err := json.Marshal(u.Object["spec"])
	if err == nil {
		_, err = envoytest.VerifyJSON(text)
	}
	if services, _, _ := unstructured.NestedSlice(u.Object, "spec", "backendServices"); err != nil && (u.GetLabels()["by"] == "" || len(services) > 0) {
		p.t.Errorf("CiliumEnvoyConfig %s/%s: %v", u.GetNamespace(), u.GetName(), err)
	}
}

func (p *proxiesUnderFaults) seeSecret(kind watch.EventType, u *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case u.GetNamespace() != webCopies:
	case u.GetName() == foreignName:
		p.judgeForeign(secretResource, u)
	case kind != watch.Deleted:
		p.copies[u.GetResourceVersion()] = true
	}
}

// judgeForeign is called with the lock held.
func (p *proxiesUnderFaults) judgeForeign(resource schema.GroupVersionResource, u *unstructured.Unstructured) {
	if u.GetResourceVersion() != p.foreign[resource.Resource] {
		p.t.Errorf("a foreign object of %s was written: %v", resource.Resource, u.Object)
	}
}

// rest: each Ingress and Service has what it is to have, and there is nothing else.
func (p *proxiesUnderFaults) rest() error {
	managed, shared := map[string]networkingv1.Ingress{}, []string(nil)
	list, err := p.core.NetworkingV1().Ingresses(web).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	configs := map[string]bool{web + "/" + foreignName: true} // that are to be
	for _, i := range list.Items {
		if ptr.Deref(i.Spec.IngressClassName, "") != "cilium" {
			continue
		}
		managed[i.Name] = i
		if i.Annotations["ingress.cilium.io/loadbalancer-mode"] == "shared" {
			shared = append(shared, i.Spec.Rules[0].Host)
			configs[p.namespace+"/"+sharedLB] = true
		} else {
			configs[web+"/cilium-ingress-web-"+i.Name] = true
		}
	}
	exist := map[string]bool{} // Services
	all, err := p.core.CoreV1().Services(web).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range all.Items {
		exist[s.Name] = true
		if s.Annotations["service.cilium.io/lb-l7"] == "enabled" {
			configs[web+"/cilium-envoy-lb-"+s.Name] = true
		}
	}
	return errors.Join(p.configsRest(configs, exist, shared), p.copiesRest(managed), p.addressesRest(managed))
}

var (
	clusterNames = regexp.MustCompile(`"web:(backend-[0-9]+):[0-9]+"`)
	hostNames    = regexp.MustCompile(`"(host-[0-9]+\.example\.com)"`)
)

// configsRest: there are the CiliumEnvoyConfigs that there are to be, with clusters of Services that exist.
func (p *proxiesUnderFaults) configsRest(want, exist map[string]bool, shared []string) error {
	var errs []error
	found := map[string]bool{}
	for _, u := range p.list(v2.CiliumEnvoyConfigResource).Items {
		name := u.GetNamespace() + "/" + u.GetName()
		text, err := json.Marshal(u.Object["spec"])
		if err == nil && u.GetName() != foreignName {
			_, err = envoytest.VerifyJSON(text)
		}
		if found[name] = true; !want[name] || err != nil {
			errs = append(errs, fmt.Errorf("CiliumEnvoyConfig %s is to be: %t, and is valid: %v", name, want[name], err))
		}
		for _, m := range clusterNames.FindAllSubmatch(text, -1) {
			if !exist[string(m[1])] {
				errs = append(errs, fmt.Errorf("CiliumEnvoyConfig %s has a cluster of the Service %s, which does not exist", name, m[1]))
			}
		}
		if u.GetName() != sharedLB {
			continue
		}
		var hosts []string
		for _, m := range hostNames.FindAllSubmatch(text, -1) {
			hosts = append(hosts, string(m[1]))
		}
		slices.Sort(hosts)
		slices.Sort(shared)
		if hosts = slices.Compact(hosts); !slices.Equal(hosts, shared) {
			errs = append(errs, fmt.Errorf("the shared configuration has %q, and %q share it", hosts, shared))
		}
	}
	for name := range want {
		if !found[name] {
			errs = append(errs, fmt.Errorf("CiliumEnvoyConfig %s is missing", name))
		}
	}
	return errors.Join(errs...)
}

// copiesRest: each Secret that an Ingress refers to has a copy, and no other.
func (p *proxiesUnderFaults) copiesRest(managed map[string]networkingv1.Ingress) error {
	var errs []error
	data, is := map[string]string{}, map[string]string{}
	for _, u := range p.list(secretResource).Items {
		content, _, _ := unstructured.NestedStringMap(u.Object, "data")
		switch u.GetNamespace() {
		case web:
			data["web-"+u.GetName()] = fmt.Sprint(content)
		case webCopies:
			is[u.GetName()] = fmt.Sprint(content)
		}
	}
	want := map[string]string{foreignName: is[foreignName]}
	for _, i := range managed {
		name := "web-" + i.Spec.TLS[0].SecretName
		if content, exists := data[name]; exists {
			want[name] = content
		}
	}
	for name, content := range want {
		if is[name] != content {
			errs = append(errs, fmt.Errorf("the copy %s has %q, and is to have %q", name, is[name], content))
		}
	}
	for name := range is {
		if _, wanted := want[name]; !wanted {
			errs = append(errs, fmt.Errorf("the copy %s is left", name))
		}
	}
	return errors.Join(errs...)
}

// addressesRest: Ingresses that share the load balancer have its address.
func (p *proxiesUnderFaults) addressesRest(managed map[string]networkingv1.Ingress) error {
	lb, err := p.core.CoreV1().Services(p.namespace).Get(p.t.Context(), sharedLB, metav1.GetOptions{})
	if err != nil {
		return err
	}
	address := ""
	if len(lb.Status.LoadBalancer.Ingress) > 0 {
		address = lb.Status.LoadBalancer.Ingress[0].IP
	}
	var wrong []string
	for name, i := range managed {
		if i.Annotations["ingress.cilium.io/loadbalancer-mode"] != "shared" || address == "" {
			continue
		}
		if all := i.Status.LoadBalancer.Ingress; len(all) != 1 || all[0].IP != address {
			wrong = append(wrong, fmt.Sprint(name, " has ", all))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the shared load balancer has %s: %s", address, strings.Join(wrong, ", "))
	}
	return nil
}

func (p *proxiesUnderFaults) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Logf("Envoy: %d states of CiliumEnvoyConfigs, %d of copies of Secrets", len(p.configs), len(p.copies))
}

// missing: enough has happened to CiliumEnvoyConfigs and Secrets for the run to show anything.
func (p *proxiesUnderFaults) missing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.configs) < 10 || len(p.copies) < 5 {
		return fmt.Errorf("only %d states of CiliumEnvoyConfigs, %d of copies of Secrets", len(p.configs), len(p.copies))
	}
	return nil
}
