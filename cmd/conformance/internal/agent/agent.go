// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/cmd/conformance/internal/proxy"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

// Agent serves the CiliumEnvoyConfigs of a cluster.
type Agent struct {
	// Core and Dynamic are clients of the cluster.
	Core    kubernetes.Interface
	Dynamic dynamic.Interface
	// SecretsNamespace has the copies of secrets.
	SecretsNamespace string
	// Address is where a port of a pod is served on this host, "" if it is not.
	Address func(podIP string, port int32) string
	// Report is called with what cannot be served.
	Report func(error)

	configs   cache.GenericLister
	services  corelisters.ServiceLister
	slices    discoverylisters.EndpointSliceLister
	pods      corelisters.PodLister
	secrets   corelisters.SecretLister
	changed   chan struct{}
	compiled  map[string]compiled        // by namespace and name of the CiliumEnvoyConfig
	listeners map[string]*proxy.Listener // by address
	reported  map[string]string          // what was reported of an address
}

// compiled is a configuration, and the version of the object that it is of.
type compiled struct {
	version string
	spec    v2.CiliumEnvoyConfigSpec
	config  *proxy.Config // nil if it cannot be served
}

// Run serves until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	a.changed = make(chan struct{}, 1)
	a.compiled, a.listeners, a.reported = map[string]compiled{}, map[string]*proxy.Listener{}, map[string]string{}
	typed := informers.NewSharedInformerFactory(a.Core, 0)
	untyped := dynamicinformer.NewDynamicSharedInformerFactory(a.Dynamic, 0)
	all := untyped.ForResource(v2.CiliumEnvoyConfigResource)
	a.configs, a.services, a.pods = all.Lister(), typed.Core().V1().Services().Lister(), typed.Core().V1().Pods().Lister()
	a.slices, a.secrets = typed.Discovery().V1().EndpointSlices().Lister(), typed.Core().V1().Secrets().Lister()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { a.wake() }, UpdateFunc: func(any, any) { a.wake() }, DeleteFunc: func(any) { a.wake() },
	}
	for _, i := range []cache.SharedIndexInformer{all.Informer(), typed.Core().V1().Services().Informer()} {
		if _, err := i.AddEventHandler(handler); err != nil {
			return err
		}
	}
	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	typed.WaitForCacheSync(ctx.Done())
	untyped.WaitForCacheSync(ctx.Done())
	defer a.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
			a.sync()
		}
	}
}

func (a *Agent) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *Agent) close() {
	for _, l := range a.listeners {
		l.Close()
	}
}

// frontend is an address of a Service that a listener of a configuration serves.
type frontend struct {
	listener string
	config   *proxy.Config
}

// sync has the listeners that the configurations ask for.
func (a *Agent) sync() {
	want := a.frontends()
	for address, l := range a.listeners {
		if _, wanted := want[address]; !wanted {
			l.Close()
			delete(a.listeners, address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(want)) {
		f := want[address]
		if l := a.listeners[address]; l != nil {
			l.Set(f.config)
			continue
		}
		l, err := proxy.Listen(address, f.listener, f.config)
		if err != nil {
			a.report(address, fmt.Errorf("%w; ports below 1024 need root, or net.ipv4.ip_unprivileged_port_start=0", err))
			continue
		}
		a.listeners[address] = l
	}
}

// report reports a failure once.
func (a *Agent) report(of string, err error) {
	if a.reported[of] != err.Error() {
		a.reported[of] = err.Error()
		a.Report(err)
	}
}

// frontends are the addresses of the Services that configurations serve.
func (a *Agent) frontends() map[string]frontend {
	found := map[string]frontend{}
	all, err := a.configs.List(labels.Everything())
	if err != nil {
		a.Report(err)
		return found
	}
	for _, o := range all {
		c := a.compile(o.(*unstructured.Unstructured))
		if c.config == nil {
			continue
		}
		for _, s := range c.spec.Services {
			svc, err := a.services.Services(s.Namespace).Get(s.Name)
			if err != nil {
				continue // it is not there yet
			}
			for _, address := range addresses(svc, s.Ports) {
				found[address] = frontend{s.Listener, c.config}
			}
		}
	}
	return found
}

// addresses are those of a Service of load balancers, with the ports that are meant.
func addresses(svc *corev1.Service, ports []int) (all []string) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		for _, p := range svc.Spec.Ports {
			if in.IP != "" && (len(ports) == 0 || slices.Contains(ports, int(p.Port))) {
				all = append(all, net.JoinHostPort(in.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return all
}

// compile decodes a CiliumEnvoyConfig unless it is the same as before. One that cannot be served is reported.
func (a *Agent) compile(u *unstructured.Unstructured) compiled {
	key := u.GetNamespace() + "/" + u.GetName()
	if c, ok := a.compiled[key]; ok && c.version == u.GetResourceVersion() {
		return c
	}
	c := compiled{version: u.GetResourceVersion()}
	text, err := json.Marshal(u.Object["spec"])
	if err == nil {
		var decoded *envoytest.Config
		if decoded, err = envoytest.VerifyJSON(text); decoded != nil {
			resolve(decoded)
			served, unserved := proxy.New(decoded, proxy.World{Endpoints: a.endpoints, Certificate: a.certificate, Authority: a.authority})
			if err = errors.Join(err, unserved); err == nil {
				c.config = served
			}
			c.spec = decoded.Spec
		}
	}
	if err != nil {
		a.report(key, fmt.Errorf("CiliumEnvoyConfig %s: %w", key, err))
	}
	a.compiled[key] = c
	return c
}

// resolve names the listener of the Services that have the first one.
func resolve(c *envoytest.Config) {
	first := ""
	for _, r := range c.Spec.Resources {
		var named struct{ Name string }
		if err := json.Unmarshal(r.Raw, &named); err == nil && c.Listeners[named.Name] != nil {
			first = named.Name
			break
		}
	}
	for i := range c.Spec.Services {
		if c.Spec.Services[i].Listener == "" {
			c.Spec.Services[i].Listener = first
		}
	}
}
