// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ING-25; number 1.8 of the contract's tenants.md: a port of the nodes belongs to the oldest that asks for it.
func TestHostPorts(t *testing.T) {
	const mode = "ingress.cilium.io/loadbalancer-mode"
	const port = "ingress.cilium.io/host-listener-port"
	ingress := func(namespace, name string, created int64, annotations map[string]string) *ingress {
		i := decode(t, fmt.Sprintf("metadata: {name: %s, namespace: %s, uid: %s%s}\nspec: {ingressClassName: cilium}", name, namespace, namespace, name))
		i.CreationTimestamp = slim.Time(created)
		i.Annotations.Labels = slim.MakeLabels(annotations)
		return i
	}
	at := func(n string) map[string]string { return map[string]string{port: n} }
	all := []*ingressWithPort{
		{ingress("aa", "first", 100, at("9090")), ""},
		{ingress("aa", "same", 300, at("9090")), ""}, // of one namespace: as the original
		{ingress("bb", "second", 200, at("9090")), "belongs to the Ingress aa/first"},
		{ingress("bb", "kubelet", 50, at("10250")), "is that of the kubelet"},
		{ingress("bb", "default", 60, nil), "which Ingresses share"},
		{ingress("bb", "other", 60, at("9091")), ""},
		{ingress("cc", "shared", 500, map[string]string{mode: sharedMode}), ""},
	}
	store, err := stream.NewLocal[ingressObject]()
	if err != nil {
		t.Fatal(err)
	}
	store.Replace()
	for _, i := range all {
		store.Upsert(i.ingress)
	}
	c := &controller{}
	c.Config = defaultConfig
	c.Config.IngressHostNetworkEnabled = true
	if c.ingresses, err = store.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	classes, err := stream.NewLocal[ingressClass]()
	if err != nil {
		t.Fatal(err)
	}
	classes.Replace()
	if c.classes, err = classes.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	configs, err := stream.NewLocal[envoyres.Object]()
	if err != nil {
		t.Fatal(err)
	}
	configs.Replace()
	if c.configs, err = configs.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if got := c.hostPortProblem(i.ingress, settingsOf(i.ingress, c.Config)); !strings.Contains(got, i.problem) || (got == "") != (i.problem == "") {
			t.Errorf("%s: %q, want %q", i.Key(), got, i.problem)
		}
	}
	for _, i := range all {
		notices := c.hostPortAskedFor(i.ingress, settingsOf(i.ingress, c.Config))
		if is := len(notices) == 1 && notices[0].Message == "the Ingress bb/second asks for port 9090 of the nodes, which this one has, and does not get it: this one is older"; is != (i.Name == "first") || len(notices) > 0 != is {
			t.Errorf("%s: %v", i.Key(), notices)
		}
	}
	var log strings.Builder
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	if c.logHostPorts(); strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "ingresses=3") {
		t.Errorf("a leader that begins logs %q", &log)
	}
	// One that is being deleted, or of another class, has its port until its configuration is gone.
	late := ingress("aa", "late", 600, at("9095"))
	leaving := ingress("bb", "leaving", 700, at("9095"))
	config := &envoyres.Object{}
	config.Namespace, config.Name, config.Spec.HostPorts = leaving.Namespace, namePrefix+"bb-leaving", envoyres.HostPorts{9095}
	config.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: leaving.Name, Controller: true})
	configs.Upsert(config)
	for name, edit := range map[string]func(*ingressObject){
		"it is being deleted": func(i *ingressObject) { i.DeletionTimestamp = 800 },
		"of another class":    func(i *ingressObject) { i.Spec.IngressClassName = new("another") },
		"at another port":     func(i *ingressObject) { i.Annotations.Labels = slim.MakeLabels(at("9096")) },
	} {
		edited := *leaving
		edit(&edited)
		store.Upsert(&edited)
		c.owners.forget()
		if got := c.hostPortProblem(late, settingsOf(late, c.Config)); !strings.Contains(got, "belongs to the Ingress bb/leaving, which has it already") {
			t.Errorf("%s: %q", name, got)
		}
	}
	store.Upsert(leaving) // younger, and served
	c.owners.forget()
	if got := c.hostPortProblem(late, settingsOf(late, c.Config)); !strings.Contains(got, "belongs to the Ingress bb/leaving, which has it already") {
		t.Errorf("beside a younger one that has yet to give it up: %q", got)
	}
	mine, ofGateway := &envoyres.Object{}, &envoyres.Object{}
	mine.Namespace, mine.Name, mine.Spec.HostPorts = late.Namespace, namePrefix+"aa-late", envoyres.HostPorts{9095}
	mine.CreationTimestamp, ofGateway.CreationTimestamp = 20, 10
	configs.Upsert(mine)
	if got := c.hostPortProblem(late, settingsOf(late, c.Config)); got != "" {
		t.Errorf("beside a younger one that gives up what both have: %q", got)
	}
	ofGateway.Namespace, ofGateway.Name, ofGateway.Spec.HostPorts = late.Namespace, "cilium-gateway-edge", envoyres.HostPorts{9095}
	ofGateway.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Gateway"), Name: "edge", Controller: true})
	configs.Upsert(ofGateway)
	if got := c.hostPortProblem(late, settingsOf(late, c.Config)); !strings.Contains(got, "belongs to the Gateway aa/edge, which has it already") {
		t.Errorf("beside a Gateway of its namespace: %q", got)
	}
	c.Config.IngressHostNetworkPorts = []string{"9090"}
	if got := c.hostPortProblem(all[5].ingress, settingsOf(all[5].ingress, c.Config)); !strings.Contains(got, "--ingress-hostnetwork-ports") {
		t.Errorf("a port that is not listed: %q", got)
	}
	// With the option, ports are shared, but for those of components, and those that are not listed.
	c.Config.IngressJoinNamespaces = true
	for _, i := range all {
		want := map[string]string{"kubelet": "is that of the kubelet", "default": "--ingress-hostnetwork-ports", "other": "--ingress-hostnetwork-ports"}[i.Name]
		if got := c.hostPortProblem(i.ingress, settingsOf(i.ingress, c.Config)); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("with ingress-join-namespaces, %s: %q, want %q", i.Key(), got, want)
		}
	}
	c.Config.IngressHostNetworkPorts = nil
	for _, i := range append(all, &ingressWithPort{late, ""}) {
		if got := c.hostPortProblem(i.ingress, settingsOf(i.ingress, c.Config)); (got != "") != (i.Name == "kubelet") {
			t.Errorf("with it alone, %s: %q", i.Key(), got)
		}
	}
}

// ING-25: an Ingress may get a port of the nodes without a change of its own, as the class becomes the default one. Younger ones of other namespaces that have
// the port are reconciled as its configuration comes, and as that goes.
func TestConfigurationsOfIngressesWakeOthers(t *testing.T) {
	store, err := stream.NewLocal[ingress]()
	if err != nil {
		t.Fatal(err)
	}
	at := func(namespace string) *ingress {
		return decode(t, fmt.Sprintf("metadata: {name: web, namespace: %s, annotations: {ingress.cilium.io/host-listener-port: '9090', ingress.cilium.io/loadbalancer-mode: dedicated}}\nspec: {ingressClassName: cilium}", namespace))
	}
	store.Replace(at("aa"), at("bb"))
	c := &controller{hostPorts: envoyres.HostPortChanges{}}
	c.Config = defaultConfig
	c.Config.IngressHostNetworkEnabled = true
	if c.ingresses, err = store.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := &envoyres.Object{}
	config.Namespace, config.Name, config.Spec.HostPorts = slim.MakeString("aa"), namePrefix+"aa-web", envoyres.HostPorts{9090}
	config.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: "web", Controller: true})
	of := func(namespace string) slim.Key { return slim.Key{Namespace: namespace, Name: "web"} }
	for _, step := range []struct {
		kind stream.ChangeKind
		want bool
	}{{stream.Upsert, true}, {stream.Upsert, false}, {stream.Delete, true}} {
		if keys := c.configChanged(stream.Change[envoyres.Object]{Kind: step.kind, Key: config.Key(), Object: config}); slices.Contains(keys, of("bb")) != step.want {
			t.Errorf("%v: %v", step, keys)
		}
	}
	config.Name, config.Controller = "cilium-gateway-edge", slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Gateway"), Name: "edge", Controller: true})
	if keys := c.configChanged(stream.Change[envoyres.Object]{Kind: stream.Upsert, Key: config.Key(), Object: config}); !slices.Contains(keys, of("aa")) || !slices.Contains(keys, of("bb")) {
		t.Errorf("a Gateway of the namespace: %v", keys)
	}
}

type ingressObject = ingress

type ingressWithPort struct {
	*ingress
	problem string
}

// ING-25, K3 of the contract's tenants.md: thousands of Ingresses that ask for one port of the nodes are looked through once after a change, not by each.
func TestManyAskForAHostPort(t *testing.T) {
	const many = 3000
	store, err := stream.NewLocal[ingressObject]()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*ingress, many)
	for n := range all {
		i := decode(t, fmt.Sprintf("metadata: {name: x%d, namespace: bb, uid: u%d, annotations: {ingress.cilium.io/host-listener-port: '20000'}}\nspec: {ingressClassName: cilium}", n, n))
		i.CreationTimestamp = slim.Time(many - n)
		all[n] = i
		store.Upsert(i)
	}
	store.Synced()
	c := &controller{inputs: map[slim.Key]input{}}
	c.Config = defaultConfig
	c.Config.IngressHostNetworkEnabled = true
	classes, err := stream.NewLocal[ingressClass]()
	if err != nil {
		t.Fatal(err)
	}
	classes.Replace()
	configs, err := stream.NewLocal[envoyres.Object]()
	if err != nil {
		t.Fatal(err)
	}
	configs.Replace()
	for _, open := range []func() error{
		func() (err error) { c.ingresses, err = store.Store(t.Context()); return err },
		func() (err error) { c.classes, err = classes.Store(t.Context()); return err },
		func() (err error) { c.configs, err = configs.Store(t.Context()); return err },
	} {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, time.Second, func() {
		for _, i := range all {
			if text := c.hostPortProblem(i, settingsOf(i, c.Config)); text != "" {
				t.Fatalf("%s: %s", i.Key(), text)
			}
		}
	})
	if oldest, _ := c.hostPortOwners().at(20000, c.Config.sharedPorts()); oldest != all[many-1] {
		t.Errorf("the oldest is %v", oldest.Key())
	}
	older := *all[0]
	older.CreationTimestamp = 0
	store.Upsert(&older)
	c.ingressChanged(stream.Change[ingress]{Kind: stream.Upsert, Key: older.Key(), Object: &older})
	if oldest, _ := c.hostPortOwners().at(20000, c.Config.sharedPorts()); oldest.Name != "x0" {
		t.Errorf("after a change the oldest is %v", oldest.Key())
	}
}
