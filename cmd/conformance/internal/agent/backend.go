// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/cmd/conformance/internal/balance"
)

// servicePort is a port of a Service.
type servicePort struct{ namespace, service, port string }

// endpoints are the addresses on this host of the endpoints namespace/name:port, and namespace:name:port.
func (a *Agent) endpoints(of string) (all []string) {
	of = strings.Replace(of, ":", "/", strings.Count(of, ":")-1)
	namespace, rest, _ := strings.Cut(of, "/")
	name, number, _ := strings.Cut(rest, ":")
	svc, err := a.services.Services(namespace).Get(name)
	if err != nil {
		return nil
	}
	for _, p := range svc.Spec.Ports {
		if strconv.Itoa(int(p.Port)) != number && p.Name != number {
			continue
		}
		for _, b := range a.backends(servicePort{namespace, name, p.Name}) {
			all = append(all, b.Address)
		}
		return all
	}
	return nil
}

// weightAnnotation has the weight of the endpoints of an EndpointSlice, for agents from 1.20 on.
const weightAnnotation = "service.cilium.io/weight"

// backends are the ready endpoints of a port in the EndpointSlices of the Service, with their addresses on this host.
func (a *Agent) backends(of servicePort) (all []balance.Backend) {
	found, err := a.slices.EndpointSlices(of.namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: of.service}))
	if err != nil {
		return nil
	}
	for _, s := range found {
		weight := uint64(1)
		if text, ok := s.Annotations[weightAnnotation]; ok {
			if weight, err = strconv.ParseUint(text, 10, 16); err != nil {
				a.Report(fmt.Errorf("EndpointSlice %s/%s: the weight %q is no number up to 65535", s.Namespace, s.Name, text))
				continue
			}
		}
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != of.port || p.Port == nil {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				for _, ip := range e.Addresses {
					if address := a.Address(ip, *p.Port); address != "" {
						all = append(all, balance.Backend{Address: address, Weight: uint32(weight)})
					}
				}
			}
		}
	}
	return all
}

// secret is the copy of a secret, by the name that agents offer it with.
func (a *Agent) secret(name string) (*corev1.Secret, error) {
	namespace, name, _ := strings.Cut(name, "/")
	if namespace != a.SecretsNamespace {
		return nil, fmt.Errorf("the secret %s/%s is not in the namespace of the copies", namespace, name)
	}
	return a.secrets.Secrets(namespace).Get(name)
}

// authority is the copy of a ConfigMap with certificates of authorities.
func (a *Agent) authority(name string) (*x509.CertPool, error) {
	s, err := a.secret(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.Data["ca.crt"]) {
		return nil, fmt.Errorf("the secret %s has no certificates of authorities", name)
	}
	return pool, nil
}

// certificate is the copy of a secret with a certificate.
func (a *Agent) certificate(name string) (*tls.Certificate, error) {
	s, err := a.secret(name)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	return &pair, err
}
