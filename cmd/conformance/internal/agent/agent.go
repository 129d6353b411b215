// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"github.com/skep-operator/skep/cmd/conformance/internal/balance"
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
	secrets   corelisters.SecretLister
	changed   chan struct{}
	compiled  map[string]compiled        // by namespace and name of the CiliumEnvoyConfig
	listeners map[string]*proxy.Listener // by address
	ports     map[port]io.Closer         // those that no proxy has
	reported  map[string]string          // what was reported of an address
}

// compiled is a configuration, and the version of the object that it is of.
type compiled struct {
	version string
	spec    v2.CiliumEnvoyConfigSpec
	config  *proxy.Config // nil if it cannot be served
}

// port is a port of a Service that connections or datagrams come to.
type port struct {
	protocol corev1.Protocol
	address  string // host:port
}

// Run serves until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	a.changed = make(chan struct{}, 1)
	a.compiled, a.listeners, a.reported = map[string]compiled{}, map[string]*proxy.Listener{}, map[string]string{}
	a.ports = map[port]io.Closer{}
	typed := informers.NewSharedInformerFactory(a.Core, 0)
	untyped := dynamicinformer.NewDynamicSharedInformerFactory(a.Dynamic, 0)
	all := untyped.ForResource(v2.CiliumEnvoyConfigResource)
	a.configs, a.services = all.Lister(), typed.Core().V1().Services().Lister()
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
	for _, l := range a.ports {
		_ = l.Close()
	}
}

// frontend is an address of a Service that a listener of a configuration serves.
type frontend struct {
	listener string
	config   *proxy.Config
}

// sync has the listeners that the configurations ask for, and those of the ports that no configuration has. What ends goes first: a port may
// come to a proxy, or leave it.
func (a *Agent) sync() {
	want := a.frontends()
	plain := a.unproxied(want)
	for address, l := range a.listeners {
		if _, wanted := want[address]; !wanted {
			l.Close()
			delete(a.listeners, address)
		}
	}
	for at, l := range a.ports {
		if _, wanted := plain[at]; !wanted {
			_ = l.Close()
			delete(a.ports, at)
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
	for at, to := range plain {
		if a.ports[at] == nil {
			a.open(at, to)
		}
	}
}

// open serves a port without a proxy. Its backends are looked at with each connection.
func (a *Agent) open(at port, to servicePort) {
	var l io.Closer
	var err error
	backends := func() []balance.Backend { return a.backends(to) }
	if at.protocol == corev1.ProtocolUDP {
		l, err = balance.ListenUDP(at.address, backends)
	} else {
		l, err = balance.ListenTCP(at.address, backends)
	}
	if err != nil {
		a.report(string(at.protocol)+" "+at.address, err)
		return
	}
	a.ports[at] = l
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
			for _, p := range svc.Spec.Ports {
				if p.Protocol == corev1.ProtocolUDP || len(s.Ports) > 0 && !slices.Contains(s.Ports, int(p.Port)) {
					continue
				}
				for _, address := range addresses(svc, p) {
					found[address] = frontend{s.Listener, c.config}
				}
			}
		}
	}
	return found
}

// unproxied are the ports of load balancers without a proxy.
func (a *Agent) unproxied(proxied map[string]frontend) map[port]servicePort {
	found := map[port]servicePort{}
	all, err := a.services.List(labels.Everything())
	if err != nil {
		a.Report(err)
		return found
	}
	for _, svc := range all {
		for _, p := range svc.Spec.Ports {
			for _, address := range addresses(svc, p) {
				if _, ok := proxied[address]; p.Protocol == corev1.ProtocolUDP || !ok {
					found[port{p.Protocol, address}] = servicePort{svc.Namespace, svc.Name, p.Name}
				}
			}
		}
	}
	return found
}

// addresses are those of a port of a Service of a load balancer.
func addresses(svc *corev1.Service, p corev1.ServicePort) (all []string) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			all = append(all, net.JoinHostPort(in.IP, strconv.Itoa(int(p.Port))))
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
