// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-59, K8S-24: a Service that is cut has all ports for the routes of Gateways, so that they stay, and none for those of the mesh.
func TestCutService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name, s.Spec.Ports = "web", []slim.ServicePort{{Port: 80}}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := route.Query{About: route.AboutPort, Key: s.Key(), Port: 81}
	if a := c.askPort(q); a.OK {
		t.Errorf("whole it has a port that it has not: %+v", a)
	}
	cut := *s
	if !slim.CutDown(&cut, 100<<10) || cut.Spec.Ports != nil {
		t.Fatal("it cannot be cut")
	}
	all.Replace(&cut)
	if a := c.askPort(q); !a.Exists || !a.OK {
		t.Errorf("cut it is %+v", a)
	}
	r := parse[route.HTTP](t, "{metadata: {name: r}, spec: {rules: [{}]}}").Route()
	a := attachMesh(r, gatewayv1.ParentReference{Name: "web"}, &cut)
	if a.accepted.OK || !strings.Contains(a.accepted.Message, "it needs 100 KiB") || len(a.ports) > 0 {
		t.Errorf("in the mesh it is %+v", a)
	}
}
