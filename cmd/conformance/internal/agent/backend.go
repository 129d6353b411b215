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
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
		if len(svc.Spec.Selector) > 0 {
			return a.selected(svc, p)
		}
		return a.listed(svc, p)
	}
	return nil
}

// selected are the endpoints of the ready pods that a Service selects: what EndpointSlices of it would have.
func (a *Agent) selected(svc *corev1.Service, p corev1.ServicePort) (all []string) {
	pods, err := a.pods.Pods(svc.Namespace).List(labels.SelectorFromSet(svc.Spec.Selector))
	if err != nil {
		return nil
	}
	port := p.TargetPort.IntVal
	if p.TargetPort.Type == intstr.Int && port == 0 {
		port = p.Port
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !isReady(pod) {
			continue
		}
		if address := a.Address(pod.Status.PodIP, port); address != "" {
			all = append(all, address)
		}
	}
	return all
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// listed are the endpoints of the EndpointSlices of a Service without a selector.
func (a *Agent) listed(svc *corev1.Service, p corev1.ServicePort) (all []string) {
	found, err := a.slices.EndpointSlices(svc.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name}))
	if err != nil {
		return nil
	}
	for _, s := range found {
		for _, port := range s.Ports {
			if port.Name == nil || *port.Name != p.Name || port.Port == nil {
				continue
			}
			for _, e := range s.Endpoints {
				for _, ip := range e.Addresses {
					if address := a.Address(ip, *port.Port); address != "" {
						all = append(all, address)
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
