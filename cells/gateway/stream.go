// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// class is a GatewayClass.
type class struct {
	route.ObjectMeta `json:"metadata"`
	Spec             gatewayv1.GatewayClassSpec   `json:"spec"`
	Status           gatewayv1.GatewayClassStatus `json:"status"`
}

// gateway is a Gateway.
type gateway struct {
	route.ObjectMeta `json:"metadata"`
	Spec             gatewayv1.GatewaySpec   `json:"spec"`
	Status           gatewayv1.GatewayStatus `json:"status"`
}

// listenerSet is a ListenerSet.
type listenerSet struct {
	route.ObjectMeta `json:"metadata"`
	Spec             gatewayv1.ListenerSetSpec   `json:"spec"`
	Status           gatewayv1.ListenerSetStatus `json:"status"`
	// unreadStatus says that the status of one that is cut could not be decoded.
	unreadStatus bool `json:"-"`
}

// CutDown implements slim.Cutter: the class stays.
func (g *gateway) CutDown() {
	g.Spec, g.Undecoded = gatewayv1.GatewaySpec{GatewayClassName: g.Spec.GatewayClassName}, slim.Undecoded{}
	slim.CutStatus(&g.Status)
}

// mostListeners is how many listeners a ListenerSet has, by its definition.
const mostListeners = 64

// CutDown implements slim.Cutter: the Gateway stays, and of the listeners what keeps others from their hosts and ports.
func (s *listenerSet) CutDown() {
	listeners := slim.First(s.Spec.Listeners, mostListeners)
	s.Spec.Listeners, s.unreadStatus = nil, s.CannotDecode("status")
	for _, l := range listeners {
		kept := gatewayv1.ListenerEntry{Name: l.Name, Hostname: l.Hostname, Port: l.Port, Protocol: l.Protocol[:min(len(l.Protocol), mostProtocol)], AllowedRoutes: cutRoutes(l.AllowedRoutes)}
		if l.TLS != nil {
			kept.TLS = &gatewayv1.ListenerTLSConfig{Mode: l.TLS.Mode}
		}
		s.Spec.Listeners = append(s.Spec.Listeners, kept)
	}
	s.Undecoded = slim.Undecoded{}
	slim.CutStatus(&s.Status)
}

// cutRoutes is which routes may attach to a listener that is cut. A selector, which may be large, stands for all namespaces: it keeps the hosts of
// routes from others.
func cutRoutes(of *gatewayv1.AllowedRoutes) *gatewayv1.AllowedRoutes {
	if of == nil {
		return nil
	}
	kept := &gatewayv1.AllowedRoutes{Kinds: cutKinds(of.Kinds)}
	if of.Namespaces != nil && of.Namespaces.From != nil {
		from := *of.Namespaces.From
		if from == gatewayv1.NamespacesFromSelector {
			from = gatewayv1.NamespacesFromAll
		}
		kept.Namespaces = &gatewayv1.RouteNamespaces{From: &from}
	}
	return kept
}

// cutKinds are the kinds of routes of those that a listener names. Another one, whose name may be long, has none: it serves no route.
func cutKinds(of []gatewayv1.RouteGroupKind) (kept []gatewayv1.RouteGroupKind) {
	for _, k := range of {
		isOurs := (k.Group == nil || *k.Group == gatewayv1.GroupName) && slices.Contains(route.Kinds, string(k.Kind))
		if k.Group = nil; !isOurs {
			k.Kind = ""
		}
		if !slices.Contains(kept, k) {
			kept = append(kept, k)
		}
	}
	return kept
}

// tlsPolicy is a BackendTLSPolicy.
type tlsPolicy struct {
	route.ObjectMeta `json:"metadata"`
	Spec             gatewayv1.BackendTLSPolicySpec `json:"spec"`
	Status           gatewayv1.PolicyStatus         `json:"status"`
}

// Trim implements slim.Trimmer: what cannot be decoded of the status is not kept, and neither is why. Others may write into a status: of their entries it is
// kept that they are there, and of ours what this duty writes.
func (p *tlsPolicy) Trim() {
	p.Undecoded, p.Spec.Options = slim.Undecoded{}, nil
	for i := range p.Status.Ancestors {
		s := &p.Status.Ancestors[i]
		s.Conditions = slices.DeleteFunc(s.Conditions, func(of metav1.Condition) bool { return s.ControllerName != controllerName || !isOfPolicy(of) })
		s.Conditions = slices.Clip(slices.Clone(s.Conditions))
	}
}

// mostMessage is more bytes than the message of a condition of ours has.
const mostMessage = 4 << 10

// isOfPolicy reports whether a condition may be one that this duty writes to a BackendTLSPolicy.
func isOfPolicy(of metav1.Condition) bool {
	return len(of.Message) < mostMessage && (of.Type == string(gatewayv1.PolicyConditionAccepted) || of.Type == string(gatewayv1.BackendTLSPolicyConditionResolvedRefs))
}

// grant is a ReferenceGrant.
type grant struct {
	slim.Meta `json:"metadata"`
	Spec      gatewayv1.ReferenceGrantSpec `json:"spec"`
}

// service is what is read of a Service.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec          `json:"spec"`
	Status      corev1.ServiceStatus `json:"status"`
}

// mostPorts is how many ports are kept of a Service that is cut.
const mostPorts = 256

// mostProtocol is more bytes than a protocol has that backends are spoken to by.
const mostProtocol = 64

// CutDown implements slim.Cutter.
func (s *service) CutDown() {
	s.Spec.Ports = slices.Clone(slim.First(s.Spec.Ports, mostPorts))
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; len(p.AppProtocol.String()) > mostProtocol {
			p.AppProtocol = slim.MakeString(p.AppProtocol.String()[:mostProtocol])
		}
	}
	slim.CutStatus(&s.Status)
}

// hidesPorts reports whether a Service may have ports that are not kept.
func (s *service) hidesPorts() bool { return s.IsCut() && len(s.Spec.Ports) >= mostPorts }

// mostAddresses is how many addresses of a Service are read. Others may write any number.
const mostAddresses = 500

// Trim implements slim.Trimmer.
func (s *service) Trim() {
	s.Status.LoadBalancer.Ingress = slim.First(s.Status.LoadBalancer.Ingress, mostAddresses)
}

type serviceMeta struct {
	slim.Meta
	Controller        slim.Owner `json:"ownerReferences"`
	DeletionTimestamp slim.Time  `json:"deletionTimestamp"`
}

type serviceSpec struct {
	Type  slim.String        `json:"type"`
	Ports []slim.ServicePort `json:"ports"`
}

// duty tells the streams of placeholders of Gateways from those of others.
type duty struct{}

// namespace is what is read of a Namespace.
type namespace struct {
	namespaceMeta `json:"metadata"`
}

type namespaceMeta struct {
	slim.Meta
	Labels slim.Labels `json:"labels"`
}

// secret is what is read of a Secret: whether its data are a certificate with a key. The data are not kept.
type secret struct {
	slim.Meta `json:"metadata"`
	Data      certificate `json:"data"`
}

// certificate says whether the data of a secret have a certificate and a key, both in PEM.
type certificate struct{ Valid bool }

// AcceptsField implements slim.FieldDecoder.
func (*certificate) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[map[string][]byte]() {
		return errors.New("certificate reads the data of a secret")
	}
	return nil
}

// DecodeField implements slim.FieldDecoder.
func (c *certificate) DecodeField(f slim.Field) error {
	data, err := entriesOf(f, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	*c = certificateOf(data)
	return err
}

// entriesOf are the entries of a map that have one of the given keys.
func entriesOf(f slim.Field, keys ...string) (map[string][]byte, error) {
	data := map[string][]byte{}
	for entry := range f.Values() {
		var key, value []byte
		for len(entry) > 0 {
			number, kind, n := protowire.ConsumeTag(entry)
			if n < 0 || kind != protowire.BytesType {
				return nil, errors.New("an entry of the data of an object is not readable")
			}
			part, m := protowire.ConsumeBytes(entry[n:])
			if m < 0 {
				return nil, protowire.ParseError(m)
			}
			entry = entry[n+m:]
			switch number {
			case 1:
				key = part
			case 2:
				value = part
			}
		}
		if name := string(key); slices.Contains(keys, name) {
			data[name] = value
		}
	}
	return data, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *certificate) UnmarshalJSON(text []byte) error {
	var data map[string][]byte
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	*c = certificateOf(data)
	return nil
}

func certificateOf(data map[string][]byte) certificate {
	return certificate{isPEM(data[corev1.TLSCertKey]) && isPEM(data[corev1.TLSPrivateKeyKey])}
}

// isPEM reports whether text has a block of PEM. What follows it may be anything.
func isPEM(text []byte) bool {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	return block != nil && len(block.Bytes) > 0
}

// configMap is what is read of a ConfigMap: whether it has certificates of authorities. They are not kept.
type configMap struct {
	slim.Meta  `json:"metadata"`
	Data       authority `json:"data"`
	BinaryData authority `json:"binaryData"`
}

// authorityKey is the key of the certificates of authorities in a ConfigMap.
const authorityKey = "ca.crt"

// isAuthority reports whether a ConfigMap has certificates of authorities.
func (m *configMap) isAuthority() bool { return m.Data.Valid || m.BinaryData.Valid }

// authority says whether the data of a ConfigMap have certificates of authorities in PEM.
type authority struct{ Valid bool }

// AcceptsField implements slim.FieldDecoder.
func (*authority) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[map[string][]byte]() && full != reflect.TypeFor[map[string]string]() {
		return errors.New("authority reads the data of a ConfigMap")
	}
	return nil
}

// DecodeField implements slim.FieldDecoder.
func (a *authority) DecodeField(f slim.Field) error {
	data, err := entriesOf(f, authorityKey)
	a.Valid = areCertificates(data[authorityKey])
	return err
}

// UnmarshalJSON implements json.Unmarshaler. PEM is no base64: which of both an entry is need not be known.
func (a *authority) UnmarshalJSON(text []byte) error {
	var data map[string]string
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	decoded, _ := base64.StdEncoding.DecodeString(data[authorityKey])
	a.Valid = areCertificates([]byte(data[authorityKey])) || areCertificates(decoded)
	return nil
}

// areCertificates reports whether text has certificates in PEM, each of them whole: Envoy takes all of them or none. Blocks of
// other types, and what is between blocks, may be anything.
func areCertificates(text []byte) bool {
	found := false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		var certificate asn1.RawValue
		if rest, err := asn1.Unmarshal(block.Bytes, &certificate); err != nil || len(rest) > 0 || certificate.Tag != asn1.TagSequence {
			return false
		}
		found = true
	}
	return found
}

// definition is a CustomResourceDefinition, of which only metadata is read.
type definition struct {
	definitionMeta `json:"metadata"`
}

type definitionMeta struct {
	slim.Meta
	Annotations slim.Subset[bundleVersion] `json:"annotations"`
}

// bundleAnnotation has the release of the Gateway API that a definition is of.
const bundleAnnotation = "gateway.networking.k8s.io/bundle-version"

type bundleVersion struct{}

// Keep implements slim.KeyFilter.
func (bundleVersion) Keep(key string) bool { return key == bundleAnnotation }

// serviceImport is a ServiceImport of other clusters.
type serviceImport struct {
	importMeta `json:"metadata"`
}

type importMeta struct {
	slim.Meta
	Annotations slim.Subset[derivedService] `json:"annotations"`
}

type derivedService struct{}

// Keep implements slim.KeyFilter.
func (derivedService) Keep(key string) bool { return key == route.DerivedAnnotation }

// classConfig is a CiliumGatewayClassConfig.
type classConfig struct {
	route.ObjectMeta `json:"metadata"`
	Spec             classConfigSpec   `json:"spec"`
	Status           classConfigStatus `json:"status"`
}

type classConfigSpec struct {
	Service     *serviceConfig `json:"service"`
	HTTPOptions struct {
		GRPCWebTranslation struct {
			Enabled *bool `json:"enabled"` // by default it is
		} `json:"grpcWebTranslation"`
	} `json:"httpOptions"`
}

// serviceConfig is what Services of a class are like.
type serviceConfig struct {
	Type                           corev1.ServiceType                  `json:"type"`
	ExternalTrafficPolicy          corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy"`
	LoadBalancerClass              *string                             `json:"loadBalancerClass"`
	IPFamilies                     []corev1.IPFamily                   `json:"ipFamilies"`
	IPFamilyPolicy                 *corev1.IPFamilyPolicy              `json:"ipFamilyPolicy"`
	AllocateLoadBalancerNodePorts  *bool                               `json:"allocateLoadBalancerNodePorts"`
	LoadBalancerSourceRanges       []string                            `json:"loadBalancerSourceRanges"`
	LoadBalancerSourceRangesPolicy string                              `json:"loadBalancerSourceRangesPolicy"`
	TrafficDistribution            *string                             `json:"trafficDistribution"`
}

type classConfigStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
}

var (
	core = corev1.SchemeGroupVersion
	api  = schema.GroupVersion(gatewayv1.GroupVersion)

	classes        = stream.Custom[class](api.WithResource("gatewayclasses")).OfKind("GatewayClass")
	gateways       = stream.Custom[gateway](api.WithResource("gateways")).OfKind("Gateway")
	listenerSets   = stream.Custom[listenerSet](api.WithResource("listenersets")).OfKind(route.KindListenerSet)
	httpRoutes     = stream.Custom[route.HTTP](api.WithResource("httproutes")).OfKind(route.KindHTTP)
	grpcRoutes     = stream.Custom[route.GRPC](api.WithResource("grpcroutes")).OfKind(route.KindGRPC)
	tlsRoutes      = stream.Custom[route.TLS](api.WithResource("tlsroutes")).OfKind(route.KindTLS)
	tlsRoutesAlpha = stream.Custom[route.TLSAlpha](tlsRoutes.Resource().GroupResource().WithVersion("v1alpha2")).OfKind(route.KindTLS)
	tcpRoutes      = stream.Custom[route.TCP](api.WithResource("tcproutes")).OfKind(route.KindTCP)
	tcpRoutesAlpha = stream.Custom[route.TCPAlpha](tcpRoutes.Resource().GroupResource().WithVersion("v1alpha2")).OfKind(route.KindTCP)
	udpRoutes      = stream.Custom[route.UDP](api.WithResource("udproutes")).OfKind(route.KindUDP)
	udpRoutesAlpha = stream.Custom[route.UDPAlpha](udpRoutes.Resource().GroupResource().WithVersion("v1alpha2")).OfKind(route.KindUDP)
	grants         = stream.Custom[grant](api.WithResource("referencegrants")).OfKind("ReferenceGrant")
	classConfigs   = stream.Custom[classConfig](schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1", Resource: "ciliumgatewayclassconfigs"}).OfKind(kindClassConfig)
	tlsPolicyKind  = stream.Custom[tlsPolicy](api.WithResource("backendtlspolicies")).OfKind(kindTLSPolicy)
	imports        = stream.Custom[serviceImport](schema.GroupVersionResource{Group: route.ImportGroup, Version: "v1beta1", Resource: "serviceimports"}).OfKind(route.KindImport)
	services       = stream.Core[service, corev1.Service](core.WithResource("services"))
	nodes          = stream.Core[node, corev1.Node](core.WithResource("nodes"))
	namespaces     = stream.Core[namespace, corev1.Namespace](core.WithResource("namespaces"))
	// Releases of Helm are large, and no certificates.
	secrets    = stream.Core[secret, corev1.Secret](core.WithResource("secrets")).MatchingFields("type!=helm.sh/release.v1")
	configMaps = stream.Core[configMap, corev1.ConfigMap](core.WithResource("configmaps"))
	// What Services of Gateways have in place of backends. The original of 1.20 has EndpointSlices for TCP and UDP, too, with this
	// label alone.
	ownedSlices    = envoyres.Slices[duty](gatewayLabel)
	ownedEndpoints = envoyres.EndpointsWith[duty](owningLabel)
	definitions    = stream.Metadata[definition](schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
)

// Kinds of objects that are referred to, or part of keys, beside those of package route.
const (
	kindClassConfig = "CiliumGatewayClassConfig"
	kindTLSPolicy   = "BackendTLSPolicy"
	kindConfigMap   = "ConfigMap"
)
