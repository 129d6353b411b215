// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Service is a global service with the backends that it has in a remote cluster. Backends with the same ports share them, so that they are not to be changed.
type Service struct {
	origin
	Backends  map[string]Ports // by IP
	Hostnames map[string]string
	Shared    bool
	ClusterID uint32
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

// objectKey is the object of a key below the folder of a cluster: namespace/name.
func objectKey(rest string) (key slim.Key, ok bool) {
	namespace, name, ok := strings.Cut(rest, "/")
	return slim.Key{Namespace: namespace, Name: name}, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
