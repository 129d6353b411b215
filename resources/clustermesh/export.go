// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ServiceExport is a Service that a cluster exports by the multi-cluster services API, as the value of its key in etcd.
// The order of its fields is an interface. Fields that may be left out do not count where they are not valid.
type ServiceExport struct {
	Cluster               string                        `json:"cluster"`
	Name                  string                        `json:"name"`
	Namespace             string                        `json:"namespace"`
	Created               metav1.Time                   `json:"exportCreationTimestamp"`
	Ports                 []mcsv1alpha1.ServicePort     `json:"ports"`
	Type                  mcsv1alpha1.ServiceImportType `json:"type"`
	SessionAffinity       corev1.ServiceAffinity        `json:"sessionAffinity"`
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
	Annotations           map[string]string             `json:"annotations,omitempty"` // as ExportedAnnotations returns them
	Labels                map[string]string             `json:"labels,omitempty"`      // as ExportedLabels returns them

	// IPFamilies are those of the Service, none where the cluster does not say.
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// InternalTrafficPolicy is nil where the cluster does not say, which means Cluster.
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   *string                              `json:"trafficDistribution,omitempty"`
}

// exportFields are those of a ServiceExport, without its methods.
type exportFields ServiceExport

// exportValue is a ServiceExport with the keys that older releases of the original read and write.
type exportValue struct {
	exportFields
	LegacyAnnotations map[string]string `json:"Annotations,omitempty"`
	LegacyLabels      map[string]string `json:"Labels,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (e *ServiceExport) MarshalJSON() ([]byte, error) {
	return json.Marshal(exportValue{exportFields(*e), e.Annotations, e.Labels})
}

// UnmarshalJSON implements json.Unmarshaler. An older key counts where the newer one is absent.
func (e *ServiceExport) UnmarshalJSON(text []byte) error {
	var v exportValue
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*e = ServiceExport(v.exportFields)
	if e.Annotations == nil {
		e.Annotations = v.LegacyAnnotations
	}
	if e.Labels == nil {
		e.Labels = v.LegacyLabels
	}
	return nil
}

// decodeServiceExport decodes the value of an export's key. Nothing of a value is used that is invalid somewhere.
func decodeServiceExport(cluster string, key slim.Key, value []byte) (*ServiceExport, error) {
	e := &ServiceExport{}
	if err := json.Unmarshal(value, e); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if err := (origin{e.Cluster, e.Namespace, e.Name}).check(cluster, key); err != nil {
		return nil, err
	}
	if len(validation.IsDNS1123Label(e.Namespace))+len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
		return nil, fmt.Errorf("%s cannot be the name of an object", key)
	}
	if e.Type != mcsv1alpha1.ClusterSetIP && e.Type != mcsv1alpha1.Headless {
		return nil, fmt.Errorf("its type %q is neither ClusterSetIP nor Headless", e.Type)
	}
	for _, p := range e.Ports {
		if p.Port < 1 || p.Port > 65535 {
			return nil, fmt.Errorf("its port %d is not between 1 and 65535", p.Port)
		}
	}
	e.Annotations, _ = ExportedAnnotations(e.Annotations)
	e.Labels, _ = ExportedLabels(e.Labels)
	e.normalizeTraffic()
	return e, nil
}

// packedExport is an export in the form in which it is kept, with the time as exactly as it was read.
type packedExport struct {
	exportFields
	Created time.Time `json:"exportCreationTimestamp"`
}

// exportCodec is the codec of service exports.
var exportCodec = codec[ServiceExport]{pack: packServiceExport, unpack: unpackServiceExport}

func packServiceExport(cluster string, key slim.Key, value []byte, most int) ([]byte, error) {
	if most > 0 && len(value) > most*partOfValue/decodedSize { // while it is decoded it may need as much as all values of a cluster
		return nil, errTooLarge
	}
	e, err := decodeServiceExport(cluster, key, value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(packedExport{exportFields(*e), e.Created.UTC()})
}

func unpackServiceExport(_ string, _ slim.Key, packed string) (*ServiceExport, error) {
	var p packedExport
	if err := json.Unmarshal([]byte(packed), &p); err != nil {
		return nil, err
	}
	e := ServiceExport(p.exportFields)
	if !p.Created.IsZero() {
		e.Created = metav1.NewTime(p.Created.Local())
	}
	return &e, nil
}

// normalizeTraffic leaves out what no Service of this release has: newer ones may have other values.
func (e *ServiceExport) normalizeTraffic() {
	if p := e.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyLocal && *p != corev1.ServiceInternalTrafficPolicyCluster {
		e.InternalTrafficPolicy = nil
	}
	if d := e.TrafficDistribution; d != nil && *d != corev1.ServiceTrafficDistributionPreferClose &&
		*d != corev1.ServiceTrafficDistributionPreferSameZone && *d != corev1.ServiceTrafficDistributionPreferSameNode {
		e.TrafficDistribution = nil
	}
	if !areFamilies(e.IPFamilies) {
		e.IPFamilies = nil
	}
}

// OmitDefaults leaves out what releases before 1.19 do not say: that a Service has IPv4 alone, and that its internal traffic goes everywhere.
func (e *ServiceExport) OmitDefaults() {
	if slices.Equal(e.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol}) {
		e.IPFamilies = nil
	}
	if p := e.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyCluster {
		e.InternalTrafficPolicy = nil
	}
}

// areFamilies reports whether a Service can have some IP families.
func areFamilies(f []corev1.IPFamily) bool {
	isOne := func(f corev1.IPFamily) bool { return f == corev1.IPv4Protocol || f == corev1.IPv6Protocol }
	switch len(f) {
	case 1:
		return isOne(f[0])
	case 2:
		return isOne(f[0]) && isOne(f[1]) && f[0] != f[1]
	}
	return false
}

// SetTraffic sets what an export says of the traffic of a Service. Values are strings, empty for none; of those that this release
// does not know nothing is said.
func (e *ServiceExport) SetTraffic(families []corev1.IPFamily, internalPolicy, distribution string) {
	policy := corev1.ServiceInternalTrafficPolicy(internalPolicy)
	e.IPFamilies, e.InternalTrafficPolicy, e.TrafficDistribution = families, &policy, &distribution
	e.normalizeTraffic()
}
