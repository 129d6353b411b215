// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ServiceExport is a Service that a cluster exports by the multi-cluster services API, as the value of its key in etcd.
// The order of its fields is an interface.
type ServiceExport struct {
	Cluster               string                        `json:"cluster"`
	Name                  string                        `json:"name"`
	Namespace             string                        `json:"namespace"`
	Created               metav1.Time                   `json:"exportCreationTimestamp"`
	Ports                 []mcsv1alpha1.ServicePort     `json:"ports"`
	Type                  mcsv1alpha1.ServiceImportType `json:"type"`
	SessionAffinity       corev1.ServiceAffinity        `json:"sessionAffinity"`
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
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
	return e, nil
}
