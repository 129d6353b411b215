// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Service is a global service with the backends that it has in a remote cluster.
type Service struct {
	origin
	Backends  map[string]Ports  `json:"backends"` // by IP
	Hostnames map[string]string `json:"hostnames"`
	Frontends map[string]Ports  `json:"frontends"`
	Shared    bool              `json:"shared"`
	ClusterID uint32            `json:"clusterID"`
}

// Ports are ports by name.
type Ports map[string]Port

// Port is a protocol and a number.
type Port struct {
	Protocol string
	Port     uint16
}

// origin is what the value of a key says about the key.
type origin struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (i origin) check(cluster string, key slim.Key) error {
	if i.Cluster != cluster || i.Namespace != key.Namespace || i.Name != key.Name {
		return fmt.Errorf("its value is that of %s in cluster %q", slim.Key{Namespace: i.Namespace, Name: i.Name}, i.Cluster)
	}
	return nil
}

// decodeService decodes the value of a service's key. Nothing of a value is used that is invalid somewhere.
func decodeService(maxID uint32) func(cluster string, key slim.Key, value []byte) (*Service, error) {
	return func(cluster string, key slim.Key, value []byte) (*Service, error) {
		s := &Service{}
		if err := json.Unmarshal(value, s); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		if err := s.check(cluster, key); err != nil {
			return nil, err
		}
		if s.ClusterID == 0 || s.ClusterID > maxID {
			return nil, fmt.Errorf("its cluster ID %d is not between 1 and %d", s.ClusterID, maxID)
		}
		for _, addresses := range []map[string]Ports{s.Frontends, s.Backends} {
			for ip := range addresses {
				if _, err := netip.ParseAddr(ip); err != nil {
					return nil, fmt.Errorf("address: %w", err)
				}
			}
		}
		s.Frontends = nil // nothing reads them
		return s, nil
	}
}

// objectKey is the object of a key below the folder of a cluster: namespace/name.
func objectKey(rest string) (key slim.Key, ok bool) {
	namespace, name, ok := strings.Cut(rest, "/")
	return slim.Key{Namespace: namespace, Name: name}, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
