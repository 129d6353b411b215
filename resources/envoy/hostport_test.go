// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-55 and ING-25: the ports at which a configuration listens on the nodes are those of the addresses of its listeners.
func TestHostPortsOf(t *testing.T) {
	listener := func(fields string) string {
		return `{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"l"` + fields + `}]}`
	}
	at := func(ip string, port int) string {
		return fmt.Sprintf(`{"socketAddress":{"address":%q,"portValue":%d}}`, ip, port)
	}
	for spec, want := range map[string][]uint32{
		`{}`:                               nil,
		listener(""):                       nil,
		listener(`,"address":{}`):          nil,
		listener(`,"address":"portValue"`): nil,
		listener(`,"address":` + at("0.0.0.0", 8080)): {8080},
		listener(`,"address":` + at("0.0.0.0", 8080) + `,"additionalAddresses":[{"address":` + at("::", 8080) + `},{"address":` + at("0.0.0.0", 80) + `}]`): {80, 8080},
		`{"resources":[{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","address":` + at("10.0.0.1", 53) + `}]}`:                              nil,
	} {
		var s Spec
		if err := json.Unmarshal([]byte(spec), &s); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if !slices.Equal(s.HostPorts, want) {
			t.Errorf("%s: ports %d, want %d", spec, s.HostPorts, want)
		}
	}
}

// SEC-14: the names that may be those of secrets, and the bound of what is decoded.
func TestSecretsOfASpec(t *testing.T) {
	const text = `{"resources":[{"name":"listener"},{"name":"a/b:80"},{"name":"cilium-secrets/shop-tls"},{ "name" : "cilium-secrets/a" },{"name":"cilium-secrets/shop-tls"},{"name":7},
		{"value":"\"name\":\"cilium-secrets/none\""},{"name":"a/b/c"},{"name":"x/\u0061"}],"name":"`
	var s Spec
	if err := s.UnmarshalJSON([]byte(text + `"}`)); err != nil || !slices.Equal(slices.Collect(s.Secrets.All()), []string{"cilium-secrets/a", "cilium-secrets/shop-tls"}) || s.Secrets.IsCut() {
		t.Errorf("%v, %v", s.Secrets, err)
	}
	if names := secretNamesIn([]byte(text)); len(slices.Collect(names.All())) != 2 {
		t.Errorf("of a text that is cut: %v", names)
	}
	var before, after runtime.MemStats
	many := []byte(`{"resources":[` + strings.Repeat(`{"":{"":{}}},`, 100_000) + `{"name":"cilium-secrets/a"}]}`)
	runtime.ReadMemStats(&before)
	err := s.UnmarshalJSON(many)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || !slices.Equal(slices.Collect(s.Secrets.All()), []string{"cilium-secrets/a"}) || used > 1<<20 || s.Digest == (envoy.Digest{}) {
		t.Errorf("of a spec of 300,000 entries: %v, %v; %d bytes are allocated", s.Secrets, err, used)
	}
}

// GW-55 and ING-25: whose a port of the nodes is.
func TestHolderOfAPort(t *testing.T) {
	type config struct {
		namespace, kind, name string
		created               int64
		ports                 HostPorts
		deleted               bool
	}
	edge, web := config{"aa", "Gateway", "edge", 20, HostPorts{80, 8080}, false}, config{"bb", "Ingress", "web", 10, HostPorts{8080}, false}
	asker := func(namespace, kind, name string) PortAsker {
		isOfDuty := func(o *Object) bool { return o.Controller.Kind() == kind && o.DeletionTimestamp.IsZero() }
		return PortAsker{
			Operators: "kube-system",
			IsMine:    func(o *Object) bool { return o.Key() == slim.Key{Namespace: namespace, Name: name} },
			Shares:    func(o *Object) bool { return isOfDuty(o) && o.Namespace.String() == namespace },
			Yields:    func(o *Object) bool { return isOfDuty(o) && o.Namespace.String() != namespace },
		}
	}
	toEdge, toWeb := asker("aa", "Gateway", "edge"), asker("bb", "Ingress", "web")
	shared := config{"kube-system", "", "cilium-ingress", 30, HostPorts{8080}, false}
	for name, test := range map[string]struct {
		configs []config
		ask     PortAsker
		want    string
	}{
		"nothing is there":                   {nil, toWeb, ""},
		"it has the port alone":              {[]config{web}, toWeb, ""},
		"another has it":                     {[]config{edge}, toWeb, "Gateway aa/edge"},
		"another has other ports":            {[]config{{"aa", "Gateway", "edge", 20, HostPorts{80}, false}}, toWeb, ""},
		"another is being deleted":           {[]config{{"aa", "Gateway", "edge", 20, HostPorts{8080}, true}}, toWeb, "Gateway aa/edge"},
		"another of its duty is in the way":  {[]config{{"cc", "Ingress", "edge", 5, HostPorts{8080}, true}}, toWeb, "Ingress cc/edge"},
		"a younger one that a tenant wrote":  {[]config{{"cc", "", "mine", 30, HostPorts{8080}, false}, edge}, toEdge, ""},
		"an older one that a tenant wrote":   {[]config{{"cc", "", "mine", 10, HostPorts{8080}, false}, edge}, toEdge, "CiliumEnvoyConfig cc/mine"},
		"both have it, and it is older":      {[]config{edge, web}, toWeb, ""},
		"both have it, and it is younger":    {[]config{edge, web}, toEdge, "Ingress bb/web"},
		"another of its namespace":           {[]config{{"bb", "Gateway", "edge", 5, HostPorts{8080}, false}}, toWeb, "Gateway bb/edge"},
		"one that shares it":                 {[]config{{"bb", "Ingress", "edge", 5, HostPorts{8080}, false}}, toWeb, ""},
		"one that has yet to give it up":     {[]config{{"cc", "Ingress", "edge", 15, HostPorts{8080}, false}}, toWeb, "Ingress cc/edge"},
		"one that gives up what both have":   {[]config{{"cc", "Ingress", "edge", 5, HostPorts{8080}, false}, web}, toWeb, ""},
		"one that yields, and a holder":      {[]config{{"cc", "Ingress", "edge", 5, HostPorts{8080}, false}, edge}, toWeb, "Gateway aa/edge"},
		"the shared listener is younger":     {[]config{edge, shared}, toEdge, "CiliumEnvoyConfig kube-system/cilium-ingress"},
		"the oldest of several is named":     {[]config{edge, {"cc", "Gateway", "a", 19, HostPorts{8080}, false}}, toWeb, "Gateway cc/a"},
		"of one time that of the first name": {[]config{edge, {"bb", "Ingress", "web", 20, HostPorts{8080}, false}}, toWeb, "Gateway aa/edge"},
	} {
		local, err := stream.NewLocal[Object]()
		if err != nil {
			t.Fatal(err)
		}
		local.Replace()
		for _, c := range test.configs {
			o := &Object{}
			o.Namespace, o.Name = slim.MakeString(c.namespace), c.name
			o.CreationTimestamp, o.Spec.HostPorts = slim.Time(c.created), c.ports
			if c.kind != "" {
				owner := fmt.Sprintf(`[{"apiVersion":"v1","kind":%q,"name":%q,"uid":"u","controller":true}]`, c.kind, c.name)
				if err := json.Unmarshal([]byte(owner), &o.Controller); err != nil {
					t.Fatal(err)
				}
			}
			if c.deleted {
				o.DeletionTimestamp = slim.Time(c.created)
			}
			local.Upsert(o)
		}
		store, err := local.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if of := test.ask.HolderOf(8080, store); of != nil {
			got = of.Describe()
		}
		if got != test.want {
			t.Errorf("%s: it is %q, want %q", name, got, test.want)
		}
	}
}

// A change of a CiliumEnvoyConfig counts if its ports are others than before.
func TestHostPortChanges(t *testing.T) {
	changes := HostPortChanges{}
	var got []string
	for _, ports := range []HostPorts{nil, {80}, {80}, {80, 81}, nil} {
		o := &Object{}
		o.Name, o.Spec.HostPorts = "a", ports
		got = append(got, fmt.Sprint(changes.Apply(stream.Change[Object]{Kind: stream.Upsert, Key: o.Key(), Object: o})))
	}
	gone := &Object{}
	gone.Name, gone.Spec.HostPorts = "a", HostPorts{80}
	got = append(got, fmt.Sprint(changes.Apply(stream.Change[Object]{Kind: stream.Delete, Key: gone.Key(), Object: gone})))
	if want := "false true false true true false"; strings.Join(got, " ") != want || len(changes) > 0 {
		t.Errorf("%s, want %s; %d are left", got, want, len(changes))
	}
}

// NIPAM-15: who listens at a port of the nodes, whatever it is of, beside those of the asker's namespace.
func TestListenerAtAPort(t *testing.T) {
	local, err := stream.NewLocal[Object]()
	if err != nil {
		t.Fatal(err)
	}
	local.Replace()
	put := func(namespace, name string, created int64, owned bool, ports ...uint32) {
		o := &Object{}
		o.Namespace, o.Name, o.CreationTimestamp, o.Spec.HostPorts = slim.MakeString(namespace), name, slim.Time(created), ports
		if owned {
			o.Controller = slim.MakeOwner(slim.OwnerReference{Kind: slim.MakeString("Ingress"), Name: name, Controller: true})
		}
		local.Upsert(o)
	}
	put("aa", "web", 10, true, 9090)
	put("bb", "older", 5, true, 9090)
	put("kube-system", "cilium-ingress", 90, false, 8080)
	put("kube-system", "owned", 90, true, 9091)
	put("aa", "shared", 10, true, 8080)
	store, err := local.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		namespace string
		port      uint32
		want      string
	}{
		{"bb", 9090, "Ingress aa/web false"},
		{"aa", 9090, "Ingress bb/older false"},
		{"cc", 9090, "Ingress bb/older false"},
		{"cc", 8080, "CiliumEnvoyConfig kube-system/cilium-ingress true"},
		{"kube-system", 8080, "Ingress aa/shared false"},
		{"cc", 9091, "Ingress kube-system/owned false"},
		{"cc", 9092, ""},
	} {
		got := ""
		if of, isShared := (PortAsker{Namespace: test.namespace, Operators: "kube-system"}).ListenerAt(test.port, store); of != nil {
			got = fmt.Sprint(of.Describe(), " ", isShared)
		}
		if got != test.want {
			t.Errorf("%d, beside %s: %q, want %q", test.port, test.namespace, got, test.want)
		}
	}
}
