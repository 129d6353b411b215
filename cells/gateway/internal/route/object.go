// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Kinds of routes, and of objects that they refer to.
const (
	KindHTTP        = "HTTPRoute"
	KindGRPC        = "GRPCRoute"
	KindTLS         = "TLSRoute"
	KindTCP         = "TCPRoute"
	KindUDP         = "UDPRoute"
	KindGateway     = "Gateway"
	KindListenerSet = "ListenerSet"
	KindService     = "Service"
	KindImport      = "ServiceImport"
)

// Kinds are the kinds of routes.
var Kinds = []string{KindHTTP, KindGRPC, KindTLS, KindTCP, KindUDP}

// ImportGroup is the API group of ServiceImports.
const ImportGroup = "multicluster.x-k8s.io"

// DerivedAnnotation has the name of the Service of a ServiceImport.
const DerivedAnnotation = "multicluster.kubernetes.io/derived-service"

// ObjectMeta is what is kept of the metadata of objects of the Gateway API. An object whose status cannot be decoded is kept: the definitions have times
// that Go does not read, and others may write a status.
type ObjectMeta struct {
	slim.Meta
	slim.Cut          `json:"-"`
	slim.Undecoded    `json:"-"`
	Generation        int64     `json:"generation"`
	CreationTimestamp slim.Time `json:"creationTimestamp"`
	DeletionTimestamp slim.Time `json:"deletionTimestamp"`
}

// Needs implements slim.Needer.
func (*ObjectMeta) Needs() []string { return []string{"metadata", "spec"} }

// neededOfRoutes are the parents and the hosts of a route. Its rules are left out if they cannot be decoded.
var neededOfRoutes = []string{"metadata", "spec.parentRefs", "spec.hostnames"}

// Needs implements slim.Needer.
func (*HTTP) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*GRPC) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*TLS) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*TCP) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*UDP) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*TLSAlpha) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*TCPAlpha) Needs() []string { return neededOfRoutes }

// Needs implements slim.Needer.
func (*UDPAlpha) Needs() []string { return neededOfRoutes }

// HTTP is an HTTPRoute.
type HTTP struct {
	ObjectMeta `json:"metadata"`
	Spec       gatewayv1.HTTPRouteSpec `json:"spec"`
	Status     Status                  `json:"status"`
}

// GRPC is a GRPCRoute.
type GRPC struct {
	ObjectMeta `json:"metadata"`
	Spec       gatewayv1.GRPCRouteSpec `json:"spec"`
	Status     Status                  `json:"status"`
}

// TLS is a TLSRoute of version v1.
type TLS struct {
	ObjectMeta `json:"metadata"`
	Spec       gatewayv1.TLSRouteSpec `json:"spec"`
	Status     Status                 `json:"status"`
}

// TCP is a TCPRoute of version v1.
type TCP struct {
	ObjectMeta `json:"metadata"`
	Spec       gatewayv1.TCPRouteSpec `json:"spec"`
	Status     Status                 `json:"status"`
}

// UDP is a UDPRoute of version v1.
type UDP struct {
	ObjectMeta `json:"metadata"`
	Spec       gatewayv1.UDPRouteSpec `json:"spec"`
	Status     Status                 `json:"status"`
}

// Version v1alpha2 of these kinds has the same fields.
type (
	TLSAlpha TLS
	TCPAlpha TCP
	UDPAlpha UDP
)

// Status is the status of a route of any kind.
type Status struct {
	Parents []gatewayv1.RouteParentStatus `json:"parents"`
}

// CutDown implements slim.Cutter: the parents stay, whose status says so.
func (r *HTTP) CutDown() {
	r.Spec.Rules, r.Undecoded = nil, slim.Undecoded{}
	slim.CutStatus(&r.Status)
}

// CutDown implements slim.Cutter: the parents stay, whose status says so.
func (r *GRPC) CutDown() {
	r.Spec.Rules, r.Undecoded = nil, slim.Undecoded{}
	slim.CutStatus(&r.Status)
}

// CutDown implements slim.Cutter: the parents stay, whose status says so.
func (r *TLS) CutDown() {
	r.Spec.Rules, r.Undecoded = nil, slim.Undecoded{}
	slim.CutStatus(&r.Status)
}

// CutDown implements slim.Cutter: the parents stay, whose status says so.
func (r *TCP) CutDown() {
	r.Spec.Rules, r.Undecoded = nil, slim.Undecoded{}
	slim.CutStatus(&r.Status)
}

// CutDown implements slim.Cutter: the parents stay, whose status says so.
func (r *UDP) CutDown() {
	r.Spec.Rules, r.Undecoded = nil, slim.Undecoded{}
	slim.CutStatus(&r.Status)
}

// CutDown implements slim.Cutter.
func (r *TLSAlpha) CutDown() { (*TLS)(r).CutDown() }

// CutDown implements slim.Cutter.
func (r *TCPAlpha) CutDown() { (*TCP)(r).CutDown() }

// CutDown implements slim.Cutter.
func (r *UDPAlpha) CutDown() { (*UDP)(r).CutDown() }
