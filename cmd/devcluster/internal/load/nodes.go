// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ciliumv2 "github.com/skep-operator/skep/resources/api/v2"
)

// after is a moment in the life of the cluster.
func after(d time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(d)) }

// digest is what looks like the digest or identifier of something.
func digest(thing string) string {
	sum := sha256.Sum256([]byte(thing))
	return hex.EncodeToString(sum[:])
}

func (p *plan) namespace(ns namespace) item {
	return item{kind: namespaceKind, shape: "namespace", object: &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: ns.name, UID: p.uid("Namespace", "", ns.name), CreationTimestamp: after(0),
			Labels: map[string]string{corev1.LabelMetadataName: ns.name, "team": ns.team},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}}
}

func (p *plan) nodeUID(name string) types.UID { return p.uid("Node", "", name) }

func nodeLabels(i int) map[string]string {
	const region = "eu-central-1"
	zone := region + string("abc"[i%3])
	return map[string]string{
		"beta.kubernetes.io/arch":                "amd64",
		"beta.kubernetes.io/os":                  "linux",
		corev1.LabelArchStable:                   "amd64",
		corev1.LabelOSStable:                     "linux",
		corev1.LabelHostname:                     nodeName(i),
		corev1.LabelInstanceTypeStable:           "m6i.4xlarge",
		corev1.LabelTopologyRegion:               region,
		corev1.LabelTopologyZone:                 zone,
		"node.kubernetes.io/pool":                fmt.Sprintf("pool-%d", i%4),
		"topology.ebs.csi.aws.com/zone":          zone,
		"failure-domain.beta.kubernetes.io/zone": zone,
	}
}

func (p *plan) node(i int) item {
	name := nodeName(i)
	return item{kind: nodeKind, shape: "node", object: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: p.nodeUID(name), CreationTimestamp: after(0), Labels: nodeLabels(i),
			Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///eu-central-1/i-" + digest(name)[:17]},
		Status: nodeStatus(i),
	}}
}

func nodeStatus(i int) corev1.NodeStatus {
	name := nodeName(i)
	return corev1.NodeStatus{
		Capacity:    nodeResources("16", "64Gi"),
		Allocatable: nodeResources("15890m", "60Gi"),
		Conditions: []corev1.NodeCondition{
			nodeCondition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
			nodeCondition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
			nodeCondition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
			nodeCondition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
		},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeIP(i).String()},
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalDNS, Address: name + ".eu-central-1.compute.internal"},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: digest("machine/" + name)[:32], SystemUUID: uuidLike("system/" + name), BootID: uuidLike("boot/" + name),
			KernelVersion: "6.12.40-generic", OSImage: "Ubuntu 24.04.3 LTS", ContainerRuntimeVersion: "containerd://2.1.4",
			KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
		},
		Images: nodeImages(),
	}
}

// uuidLike is what looks like a random UUID.
func uuidLike(thing string) string {
	d := digest(thing)
	return d[:8] + "-" + d[8:12] + "-4" + d[13:16] + "-a" + d[17:20] + "-" + d[20:32]
}

func nodeResources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cpu),
		corev1.ResourceMemory:           resource.MustParse(memory),
		corev1.ResourcePods:             resource.MustParse("250"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		"hugepages-2Mi":                 resource.MustParse("0"),
	}
}

func nodeCondition(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: t, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: after(time.Hour), LastTransitionTime: after(time.Minute),
	}
}

func nodeImages() []corev1.ContainerImage {
	var images []corev1.ContainerImage
	for i := range podVariants {
		tag := image(i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{imageID(tag), tag},
			SizeBytes: int64(40_000_000 + 7_000_000*i),
		})
	}
	return images
}

func (p *plan) ciliumNode(i int) item {
	name := nodeName(i)
	cidr := podCIDR(i)
	cn := &ciliumv2.CiliumNode{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: p.uid("CiliumNode", "", name), CreationTimestamp: after(time.Minute), Labels: nodeLabels(i), Generation: 1,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: p.nodeUID(name)}},
		},
		Spec: ciliumv2.CiliumNodeSpec{
			BootID:           uuidLike("boot/" + name),
			Addresses:        []ciliumv2.NodeAddress{{Type: ciliumv2.NodeAddressInternalIP, IP: nodeIP(i).String()}},
			HealthAddressing: ciliumv2.AddressPair{IPv4: podIP(i, 2).String()},
			NodeIdentity:     0,
		},
	}
	shape := "ciliumnode"
	if p.Converged {
		shape += "/converged"
		cn.Spec.IPAM.PodCIDRs = []string{cidr.String()}
		cn.Spec.Addresses = append(cn.Spec.Addresses,
			ciliumv2.NodeAddress{Type: ciliumv2.NodeAddressCiliumInternalIP, IP: podIP(i, 1).String()})
	}
	return item{kind: ciliumNodeKind, shape: shape, fillers: []string{string(p.nodeUID(name))}, object: cn}
}
