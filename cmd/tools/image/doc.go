// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command image puts programs that are built already into a container image for several platforms, as an OCI layout:
// a folder that registries, podman, skopeo and containerd take as it is. It needs no container engine and asks no
// registry, for there is nothing below the image: no distribution, no shell, no libc. What is in it is
//
//	/usr/bin/cilium-operator…            the programs, by the names of the original
//	/usr/bin/cilium-operator-aws…        links to the first of them, for clouds that have no program here
//	/usr/bin/operator                    the same, by the name that documents use
//	/bin/gops                            looks at a running operator, where `cilium sysdump` expects it
//	/etc/ssl/certs/ca-certificates.crt   Mozilla's authorities, of a pinned version of golang.org/x/crypto
//	/licenses                            the licences of all that is linked in
//	/var/run/cilium                      where the socket goes, under any user; the root may be read-only
//
// It names no user, as the original's image does not: what charts mount from the host or from secrets may be readable to
// root alone. A pod's securityContext may name any.
//
// The same programs give the same image, to the byte. A program that is not static, or not of its platform, is refused.
//
//	go -C cmd/tools run ./image -programs bin/image/programs -tools bin/image/tools -licenses bin/image/licenses bin/image/oci
//
// Programs of a platform are in a folder of its name, such as linux-amd64. `make image` does all of it.
package main
