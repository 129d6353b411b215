// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// ING-31: Ingresses that name too many hosts are left out, of the namespace that names most the youngest; nothing is known of their names.
func TestCrowdOfNames(t *testing.T) {
	ingresses := func(namespace string, created, hosts int) *ingress {
		i := &ingress{}
		i.Name, i.Namespace, i.CreationTimestamp = fmt.Sprintf("%s-%d", namespace, created), slim.MakeString(namespace), slim.Time(created)
		for n := range hosts - 1 {
			i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("h%d.%s.example.com", n, i.Name)})
		}
		i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"tls." + i.Name}}}
		i.Spec.IngressClassName = new("cilium")
		return i
	}
	all := []*ingress{ingresses("aa", 9, 30), ingresses("bb", 1, 40), ingresses("bb", 2, 40), ingresses("bb", 3, 10), ingresses("cc", 8, 20)}
	for most, want := range map[int]string{140: "", 139: "bb-3", 129: "bb-2", 100: "bb-2", 95: "bb-2 bb-3", 90: "bb-2 bb-3", 89: "bb-1 bb-2"} {
		crowd := crowdOf(all, most)
		var got []string
		for _, i := range all {
			if crowd[i.Key()] {
				got = append(got, i.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of %d names %v are left out, want %s", most, got, want)
		}
	}
	small, vast := ingresses("aa", 2, 3), ingresses("bb", 1, mostNames)
	local, classes := newLocal[ingress](t), newLocal[ingressClass](t)
	local.Replace(small, vast)
	classes.Replace()
	c := &controller{params: params{Config: defaultConfig}}
	c.Config.IngressDefaultLBMode = sharedMode
	c.reports = envoyres.NewReports("Ingress", nil, slog.New(slog.DiscardHandler), health.NewTree().Reporter("ingress"))
	var err error
	if c.ingresses, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.classes, err = classes.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !c.ingestShared() || !c.shared.ingested[vast.Key()].crowded || len(c.shared.ingested[vast.Key()].model.HTTP) > 0 || len(c.shared.ingested[small.Key()].model.HTTP) == 0 {
		t.Errorf("what is known of too many names: %d hosts", len(c.shared.ingested[vast.Key()].model.HTTP))
	}
	if c.ingestShared() {
		t.Error("the same again is something else")
	}
	local.Delete(small.Key())
	if !c.ingestShared() || c.shared.ingested[vast.Key()].crowded {
		t.Error("once there is space they are not known")
	}
}
