/* A module for nsswitch.conf, of the image's own making: it knows one user. */
#define _GNU_SOURCE
#include <errno.h>
#include <nss.h>
#include <pwd.h>
#include <string.h>

enum nss_status _nss_own_getpwnam_r(const char *name, struct passwd *made, char *buffer, size_t size, int *error) {
  if (strcmp(name, "of-the-module") != 0) { *error = ENOENT; return NSS_STATUS_NOTFOUND; }
  if (size < 32) { *error = ERANGE; return NSS_STATUS_TRYAGAIN; }
  strcpy(buffer, name);
  *made = (struct passwd){.pw_name = buffer, .pw_passwd = "x", .pw_uid = 4242, .pw_gid = 4242, .pw_gecos = "", .pw_dir = "/", .pw_shell = "/bin/sh"};
  return NSS_STATUS_SUCCESS;
}
